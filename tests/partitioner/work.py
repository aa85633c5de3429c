"""The target function of a worker process of the fuzzer."""


def work(seeds, number, path, send):
    """Sends what `search.search` returns for each seed.

    Args:
        seeds: Seeds, each for `number` programs.
        number: Number of programs.
        path: File for the program that is being run.
        send: End of a pipe.
    """
    # TensorFlow starts in this process only.
    from tests.partitioner.search import search

    for seed in seeds:
        send.send(search(seed, number, path))
