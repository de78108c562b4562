"""What a request does: decisions of `registry.model` inside transactions of `registry.store`.

One class per kind of work (Registrar, Reader, Deleter, Settings), each over the same Database
and the same Loader of parsed schemas. Nothing here knows of HTTP.
"""
