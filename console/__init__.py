"""The web console: schema, stream, audit and warehouse of a Headworks installation on one address.

- `sources`: what is asked in the background, one thread each, and kept with its age;
- `views`: one module a screen, from what the sources said to frozen values;
- `app`: routes, who may see what, and values to HTML or JSON;
- `templates`, `static`: how a page looks; htmx is vendored, nothing is fetched from elsewhere.

Rules: it reads and never changes anything; it asks the other parts through their public reading
functions and keeps no state of its own that could disagree with theirs; what it shows came from
outside (docs, messages, names) and is escaped.
"""
