"""Benchmarks: Headworks and its peers, measured in one run (`python -m bench NAME`).

How a benchmark joins: put a module or package `bench/NAME.py` here, with NAME one of
`bench.__main__.NAMES`. It needs two things:

    TITLE = "One line: what is measured, with whose clients"

    def run(bench: Bench) -> None:
        for _ in bench.rounds(full=3, quick=1):             # rounds, all cases in each: interleaved
            for peer in peers:
                bench.record(
                    "produce, batch 1", peer.name, rate, "messages/s",
                    cpu=1e6 * seconds / count, cpu_unit="us/message",
                )
        bench.bar("batch 1 against RabbitMQ", at_least=3, unit="x", got=bench.ratio(
            "produce, batch 1", "headworks", "RabbitMQ"))

The frame (`bench.frame.Bench`) offers:

- `bench.quick`: do the same things smaller; the whole of NAME within 60 seconds.
- `bench.folder`: scratch, removed at the end, `bench.say(text)`: progress, to stderr.
- `record(what, who, value, unit, cpu=, cpu_unit=)`: one sample; call it once a round. The result
  holds the median, the lowest and the highest of all rounds, and of the CPU time as well.
- `ratio(what, who, other)`: the median over the rounds of who/other, each taken in the same round,
  so that a machine which is slow for a minute slows both. None if one of them is missing.
- `bar(name, at_least= or at_most=, got=, unit=)`: a promise and what came of it. A bar whose peer
  is missing has `got` null and is not met: nothing is silently left out.
- `missing(who, why)`: a peer that cannot be measured here. `note(text)`: what a reader must know,
  such as whose client was used.
- `bench.processes.Usage(pid)`: CPU seconds and memory of a server and its children.

The result, `--format json`, on stdout:

    {"benchmark": NAME, "title": .., "quick": bool, "machine": {..}, "seconds": ..,
     "measurements": {"WHAT: WHO": {"median": x, "low": x, "high": x, "unit": "..",
                                    "rounds": [..], "cpu": {"median": .., .., "unit": ".."}}},
     "bars": {"NAME": {"bar": x, "got": y, "ok": bool, "unit": "..", "sense": "at least"}},
     "missing": {"WHO": "why"}, "notes": [".."]}

Exit 0 if every bar is met, 1 if one is not, 2 for wrong usage, 3 for an unreachable service.
`python -m bench report RESULT.json` writes the same as Markdown; with `--into docs/benchmarks.md`
it replaces that benchmark's tables there.

Rules: a benchmark is a user of the project. It starts our servers as users start them, and imports
only what a user could. The benchmark fetches peers; they are never a dependency.
"""
