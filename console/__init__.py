"""The web console: schemas, streams, audit, and warehouse of an installation in one place.

- `sources`: read in the background, one thread each, and kept with their age.
- `views`: one module per screen, from source snapshots to frozen values.
- `app`: routes, visibility, and the conversion of values to HTML or JSON.
- `templates`, `static`: the look of the pages; htmx is vendored, and nothing is loaded from
  elsewhere.

Rules:

- The console only reads, with one exception: a user who may write a topic can send its dead letters
  back. It uses the other parts through their public reading functions.
- It keeps no state that could disagree with theirs.
- Everything that it shows came from outside (docs, messages, names), so it is escaped.
"""
