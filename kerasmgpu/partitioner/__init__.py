"""A function of one device becomes the function that N replicas run together.

    tracing.py       the function as it runs on one device
    one_device.py    the strategy says meanwhile that it has one replica
    graph.py         the trace as nodes; equal ones are one
    order.py         orders of effects that only data give
    updates.py       fewer nodes for what an optimizer does
    facts.py         shapes, with symbols for what the batch decides
    sizes.py         such sizes: polynomials
    elements.py      shapes of what lists of tensors hold

    planning.py      each tensor gets a kind
    kinds.py         the kinds: replicated, sharded by rows, partial
    rules/           what each operation does to rows
    agreement.py     what all processes must have to the same bits

    building.py      the function of all replicas, node by node
    writing.py       nodes as a `FunctionDef`
    bodies.py        loops and branches
    conversions.py   a tensor of one kind as one of another
    sums.py          which parts are summed together, and when
    host_sizes.py    sizes as they are when the function runs
    entries.py       which entries of sparse rows a replica has
    empty_shares.py  kernels that must not see a share without rows
    places.py        a replica's number, or the host

    replicas.py      shares of rows; replicas meet in shared memory
    collectives.py   they meet in TensorFlow's collectives
    cross_device.py  they meet in a `tf.distribute.CrossDeviceOps`
    compilation.py   stretches between meetings that XLA compiles

    function.py      what is called: traced anew for other types of arguments
    program.py       a trace as a function of all replicas
    execution.py     several steps on an iterator in one call
    own_time.py      seconds of a worker's own part of a step
    report.py        how a program was partitioned, in numbers

It knows TensorFlow and nothing of Keras. `docs/partition.md` says what happens
in each step, and how a rule is added.
"""
