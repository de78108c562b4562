"""The console: its views, its pages, and a browser that uses them."""
