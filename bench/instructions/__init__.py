"""Two checkouts compared by instructions, which do not depend on the load of the machine.

- `__main__`: `python -m bench.instructions CHECKOUT`, the table of both.
- `callgrind`: a process under valgrind, and the cost of a call to it.
- `broker_paths`: requests to a broker over a bare socket.
- `sdk_worker`: encoding, decoding, and sending, in a process of the checkout that is measured.
"""
