"""A function of one device becomes the function that N replicas run together.

    tracing.py       the function as it runs on one device
    one_device.py    the strategy says meanwhile that it has one replica
    graph.py         the trace as nodes; equal ones are one
    order.py         orders of effects that only data give
    updates.py       fewer nodes for what an optimizer does
    sharded_variable.py  a variable of which each replica holds a part
    sharded_handles.py   what a step does with the handle of one
    facts.py         shapes, with symbols for what the batch decides
    sizes.py         such sizes: polynomials
    elements.py      shapes of what lists of tensors hold

    planning.py      each tensor gets a kind
    kinds.py         the kinds: replicated, sharded by rows, partial
    cost.py          bytes that plans send
    records.py       what is known of an operation, declared once
    rules/           what each operation does to rows

    ir/              programs: operations and communication as instructions
    passes/          from the plan to a program that can be written

    emission.py      writes a program, instruction by instruction
    regions.py       writes loops and branches
    building.py      the function that is written: references and operations
    writing.py       nodes as a `FunctionDef`
    host_sizes.py    sizes as they are when the function runs
    entries.py       which entries of sparse rows a replica has
    empty_shares.py  kernels that must not see a share without rows
    places.py        a replica's number, or the host

    replicas.py      shares of rows; communication in shared memory
    collectives.py   communication by TensorFlow's collectives
    variable_collectives.py  those of sharded variables between workers
    lengths.py       what they send, padded where values decide how much
    exchanges.py     rows of tables travel to their owners, and back
    cross_device.py  communication by a `tf.distribute.CrossDeviceOps`
    micro_batches.py shares that take turns on a device
    turns.py         control dependencies that make them take turns
    compilation.py   functions of the clusters that XLA compiles

    function.py      what is called: traced anew for other types of arguments
    program.py       a trace as a function of all replicas
    out_of_memory.py a step that ran out of memory runs again in more parts
    execution.py     several steps on an iterator in one call
    compute_time.py  compute time of a worker, without waiting
    report.py        how a program was partitioned, in numbers

It knows TensorFlow and nothing of Keras. `docs/partition.md` says what happens
in each step, and how a rule is added.
"""
