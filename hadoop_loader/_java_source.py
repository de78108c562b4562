"""Classes of Java that the loader brings as source, for what Spark's JVM offers no call.

Rule: Spark's own compiler (Janino) compiles a class when it is wanted, so there is no jar to
install. A class of another class loader has no name in py4j, so an instance of it is made.
"""

from __future__ import annotations

from importlib import resources
from typing import Any


def java_instance(jvm: Any, package: str, source: str, name: str, *arguments: Any) -> Any:
    """Compile `source`.java of a package, and return an instance of its class `name`.

    The class has one constructor, with as many parameters as there are arguments.
    """
    text = resources.files(package).joinpath(f"{source}.java").read_text(encoding="utf-8")
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(text)
    found = compiler.getClassLoader().loadClass(name)
    given = jvm.java.util.ArrayList()
    for one in arguments:
        given.add(one)
    return found.getDeclaredConstructors()[0].newInstance(given.toArray())
