"""The shapes of what lists of tensors hold.

The backward pass of a loop reads what its forward pass put into lists, and
TensorFlow seldom knows their shapes. They are found by guessing: the graph is
looked at several times, each time as if lists held what was put into them the
last time as far as that was known. A guess holds if in the end all that is put
in, if what is read is as guessed, is as guessed; what isn't is given up.
"""


def common_sizes(one, two):
    """The sizes that two shapes agree on; `None` for different ranks."""
    if one is None or two is None or len(one) != len(two):
        return None
    return tuple(a if a == b else None for a, b in zip(one, two))


def common(one, two):
    """What holds for both of two `Tensor.element`s."""
    lists = [held for held in (one, two) if isinstance(held, Elements)]
    if len(lists) == 2:
        one.join(two)
        return one
    if lists:
        # What else there may be, nobody knows.
        lists[0].put(lists[0], None)
        return None
    return common_sizes(one, two)


class Elements:
    """The elements of a list, and of all lists that may be the same one.

    Attributes:
        shape: The guess of their shape; `None` where there is none.
        value: The guess of their `Tensor.value`, if they hold sizes.
    """

    def __init__(self):
        self._joined = None
        self._guess = (None, None)
        self._given_up = (_Merged(), _Merged())
        self._put = {}

    @property
    def shape(self):
        return self._cell()._guess[0]

    @property
    def value(self):
        return self._cell()._guess[1]

    @property
    def is_joined(self):
        """Whether another object stands for this one."""
        return self._joined is not None

    def put(self, node, shape, value=None):
        """Notes an element of a shape and value that hold everywhere.

        Args:
            node: What puts it in, as far as it is known by now.
            shape: See `Tensor.shape`.
            value: See `Tensor.value`.
        """
        self._cell()._put[node] = (shape, value)

    def join(self, other):
        """Notes that two lists may be one."""
        one, two = self._cell(), other._cell()
        if one is not two:
            two._joined = one
            one._put.update(two._put)

    def guess(self):
        """Guesses from what was put in; returns whether that is news."""
        before = self._guess
        self._guess = tuple(
            rule.applied(_agreement([put[n] for put in self._put.values()]))
            for n, rule in enumerate(self._given_up)
        )
        return self._guess != before

    def give_up(self, wholly=False):
        """Gives up what doesn't hold; returns whether there was any."""
        found = False
        for n, rule in enumerate(self._given_up):
            for put in (
                [None] if wholly else [put[n] for put in self._put.values()]
            ):
                found |= rule.give_up(self._guess[n], put)
        return found

    def forget(self):
        """Forgets what was put in, before the graph is looked at again."""
        self._put = {}

    def _cell(self):
        return self if self._joined is None else self._joined._cell()


class _Merged:
    """What was given up of a shape or value."""

    def __init__(self):
        self._all = False
        self._entries = set()

    def applied(self, guess):
        if self._all or not isinstance(guess, tuple):
            return None if self._all else guess
        return tuple(
            None if n in self._entries else size for n, size in enumerate(guess)
        )

    def give_up(self, guess, found):
        """Compares a guess with what was found; returns whether it was wrong."""
        if guess is None or guess == found:
            return False
        if not isinstance(guess, tuple) or common_sizes(guess, found) is None:
            self._all = True
            return True
        wrong = {
            n
            for n, (one, two) in enumerate(zip(guess, found))
            if one is not None and one != two
        }
        self._entries |= wrong
        return bool(wrong)


def _agreement(facts):
    """What several shapes or values agree on, as far as they are known."""
    result = None
    for known in facts:
        if known is None:
            continue
        if result is None:
            result = known
        elif isinstance(known, tuple) and isinstance(result, tuple):
            if len(known) != len(result):
                return None
            result = tuple(b if a is None else a for a, b in zip(result, known))
    return result
