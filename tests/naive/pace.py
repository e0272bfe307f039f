"""Computations at speeds that change: plain walks through their pieces."""


def slowed(ends, speed, factor, begin, work):
    """Seconds of `work` from `begin` on; turns end at ends, the first at full speed."""
    now, left = begin, work
    for turn, end in enumerate(ends):
        if end <= now:
            continue
        rate = speed if turn % 2 == 0 else speed / factor
        if left <= rate * (end - now):
            return now + left / rate - begin
        left -= rate * (end - now)
        now = end
    raise ValueError("too few turns")


def integrated(table, column, begin, work, step=1e-5):
    """Seconds of `work` from `begin` on at the rates of a csv text, looped, by small steps."""
    rows = [line.split(",") for line in table.split()[1:]]
    times = [float(row[0]) for row in rows]
    rates = [float(row[1 + column]) for row in rows]
    period = times[-1] + times[-1] - times[-2]
    now = begin
    while work > 0.0:
        place = max(k for k, t in enumerate(times) if t <= now % period)
        work -= rates[place] * step
        now += step
    return now - begin
