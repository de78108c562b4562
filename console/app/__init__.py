"""The console as a web application: visibility, routes, and pages as HTML and JSON.

- `visibility`: the names that one principal may see; `guard`: authentication and the headers of
  every response.
- `page`: a view as HTML or as JSON, by the end of the path.
- `routes`: the path of every screen; it and the `*_routes` have a function per screen.
- `application`: the whole application; `server`: the process.
"""
