"""Prints the figures of docs/guide/litellm.md: what a team uses of 60,000 tokens a minute through two proxies of two
workers each.

    LEASEWAY_TEST_LITELLM=$(command -v litellm) python src/python/tests/litellm_proxy/measure.py
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from setup import TOKENS, Proxy, Setup, load, post

SECONDS = 200
#: Workers whose callers have gone give their shares up meanwhile.
SETTLING_SECONDS = 80
#: Callers without a pause. Each call uses 270 tokens on average and reserves 500.
CALLERS = 12


def most_beyond(used: Sequence[tuple[float, int]]) -> float:
    """The maximum over all periods of the tokens used, minus those that the rate allows in the period."""
    least, most, total = 0.0, 0.0, 0
    for n, (at, tokens) in enumerate(used):
        before = total - TOKENS * (at - used[0][0])
        least = before if n == 0 else min(least, before)
        total += tokens
        most = max(most, before + tokens - least)
    return most


def run(setup: Setup, name: str, proxies: Sequence[Proxy]) -> None:
    tag = name.replace(" ", "-").replace(",", "")
    begun = time.time()
    statuses = asyncio.run(load(proxies, SECONDS, CALLERS, "tokens", f"tag={tag} hello"))
    used = setup.used(tag)
    late = sum(tokens for at, tokens in used if begun + SETTLING_SECONDS <= at < begun + SECONDS)
    late /= TOKENS * (SECONDS - SETTLING_SECONDS)
    print(
        f"| {name} | {statuses.get(200, 0)} | {statuses.get(429, 0)} | {late:.1%} | {most_beyond(used):,.0f} |",
        flush=True,
    )


def main() -> None:
    # LiteLLM imports modules from two folders above its working folder.
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "measure"
        at.mkdir()
        setup = Setup(at, 2, 2, window=60)
        try:
            setup.ready()
            for proxy in setup.proxies:
                post(proxy, "other-u", "hello")
            one, two = setup.proxies
            print("| load | answered | refused | of the limit | most beyond the rate, of 60,000 |")
            print("|---|---|---|---|---|")
            run(setup, "both proxies", [one, two])
            run(setup, "one proxy, the other idle", [one])
            run(setup, "11 callers on one proxy, 1 on the other", [one] * 11 + [two])
            time.sleep(70)
            run(setup, "both proxies, after a quiet minute", [one, two])
        finally:
            setup.stop()


if __name__ == "__main__":
    main()
