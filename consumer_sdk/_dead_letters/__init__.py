"""Dead letters: what they carry, which of them are chosen, and how they return.

- `letter`: the headers, and the letter that they describe.
- `selection`: the letters that a user asks for.
- `reading`: the letters of a dead-letter topic.
- `redrive`: sends letters back, and can be killed at any moment.

Rules: reading changes nothing. Only `redrive` writes, and it never deletes a letter.
"""
