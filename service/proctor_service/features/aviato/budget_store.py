"""Entries of all replicas in Redis: each run's sandboxes, their rate, and its demand.

A single hash holds an entry for each run of a service. A script changes an entry and checks the
limits, so two replicas never take the last sandbox together. An entry has no time to live: the
entry of a dead run stays until another replica has stopped its sandboxes.

A sequence number orders the writes of a run: a late write is passed over. Two more fields are
`since`, the time at which the hash was new by the clock of Redis, and `group`, a random name. A
third, `swept`, appears when all live sandboxes are in the entries.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from proctor_service.features.aviato.budget import Answer, BudgetEntry, BudgetLimits, StoreDown
from proctor_service.redis_client import RedisDown, answer_of, connect

SETTLE_SECONDS = 3
"""Time without grants of a Redis after a loss of data, in which all replicas write theirs."""
KEY = b"proctor:aviato-budget"
_SINCE, _GROUP, _SWEPT = b"since", b"group", b"swept"

_WRITE = """
local run, sequence = ARGV[1], tonumber(ARGV[2])
local count, rate, waiting = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local grows, price = ARGV[6] == '1', tonumber(ARGV[7])
local most, most_rate, settle = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local own = string.format('%d %d', most, most_rate)
local now = tonumber(redis.call('TIME')[1])
redis.call('HSETNX', KEYS[1], 'since', now)
redis.call('HSETNX', KEYS[1], 'group', ARGV[11])
local since = tonumber(redis.call('HGET', KEYS[1], 'since'))
if since > now then
    redis.call('HSET', KEYS[1], 'since', now)
end
local settled = now - since >= settle and redis.call('HEXISTS', KEYS[1], 'swept') == 1
local function least(a, b)
    if a == 0 or b == 0 then return math.max(a, b) end
    return math.min(a, b)
end
local all = redis.call('HGETALL', KEYS[1])
local active, counts, rates, others = 1, count, rate, {}
for at = 1, #all, 2 do
    if all[at] ~= 'since' and all[at] ~= 'group' and all[at] ~= 'swept' then
        local s, c, r, w, m, n = string.match(all[at + 1], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
        s, c, r, w = tonumber(s), tonumber(c), tonumber(r), tonumber(w)
        most, most_rate = least(most, tonumber(m)), least(most_rate, tonumber(n))
        if all[at] == run then
            if s >= sequence then return {0, all} end
        else
            counts, rates = counts + c, rates + r
            if c + w > 0 then active = active + 1 end
            if w > 0 then table.insert(others, {c, r}) end
        end
    end
end
local function within(c, r, part)
    return (most == 0 or c <= math.max(1, math.floor(most / part)))
        and (most_rate == 0 or r <= most_rate / part)
end
local granted = 0
if grows and settled and within(counts + 1, rates + price, 1) then
    granted = 1
    if not within(count + 1, rate + price, active) then
        for _, other in ipairs(others) do
            if within(other[1] + 1, other[2] + price, active) then granted = 0 end
        end
    end
end
if granted == 1 then count, rate = count + 1, rate + price end
redis.call('HSET', KEYS[1], run,
    string.format('%d %d %d %d %s', sequence, count, rate, waiting, own))
return {granted, redis.call('HGETALL', KEYS[1])}
"""

_ENTER = """
for at = 1, #ARGV, 2 do redis.call('HSETNX', KEYS[1], ARGV[at], ARGV[at + 1]) end
return redis.call('HSET', KEYS[1], 'swept', 1)
"""

_FORGET = """
local found = redis.call('HGET', KEYS[1], ARGV[1])
if found and string.match(found, '^%d+') == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
return 0
"""


class RedisBudgetStore:
    """Implements `budget.BudgetStore`."""

    def __init__(self, url: str) -> None:
        """Create the client. Raises StartError for an invalid URL."""
        self._redis = connect(url)

    async def write(self, entry: BudgetEntry, price: int | None, group: str) -> Answer:
        """See `BudgetStore.write`."""
        values: list[str | int] = [
            entry.run,
            entry.sequence,
            entry.sandboxes,
            entry.rate,
            entry.waiting,
            int(price is not None),
            price or 0,
            entry.limits.sandboxes,
            entry.limits.rate,
            SETTLE_SECONDS,
            group or secrets.token_hex(8),
        ]
        granted, flat = await self._ask(_WRITE, *values)
        pairs = dict(zip(flat[::2], flat[1::2], strict=True))
        group, swept = pairs[_GROUP].decode(), _SWEPT in pairs
        return Answer(bool(granted), _entries(pairs), group, swept)

    async def enter(self, entries: Sequence[BudgetEntry]) -> None:
        """See `BudgetStore.enter`."""
        values = [
            text
            for each in entries
            for text in (
                each.run,
                f"{each.sequence} {each.sandboxes} {each.rate} {each.waiting} 0 0",
            )
        ]
        await self._ask(_ENTER, *values)

    async def forget(self, run: str, sequence: int) -> None:
        """See `BudgetStore.forget`."""
        await self._ask(_FORGET, run, sequence)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def _ask(self, script: str, *values: str | int) -> Any:
        try:
            return await answer_of(self._redis.eval(script, 1, KEY, *values))
        except RedisDown as error:
            raise StoreDown(type(error).__name__) from None


def _entries(pairs: Mapping[bytes, bytes]) -> dict[str, BudgetEntry]:
    found = {}
    for name, value in pairs.items():
        if name not in (_SINCE, _GROUP, _SWEPT):
            run = name.decode()
            sequence, sandboxes, rate, waiting, most, most_rate = map(int, value.split())
            limits = BudgetLimits(most, most_rate)
            found[run] = BudgetEntry(run, sequence, sandboxes, rate, waiting, limits)
    return found
