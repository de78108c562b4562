"""The console as a web application: who may see what, routes, and pages as HTML and JSON.

- `visibility`: what one principal may see; `guard`: who asks, and the headers of every answer;
- `page`: a view as HTML or as JSON, by the end of the path;
- `routes`: one function a screen; `application`: all of it together; `server`: the process.
"""
