"""`headworks doctor`: whether this machine will do, and what to change.

- `diagnosis`: the result of one check, and what the results mean together.
- `installation`: the package, its extras, its compiled parts, and Java.
- `machine`: disk, memory, open files, and the clock.
- `services`: the ports, and the servers of the settings.
- `command`: the command.
"""
