"""What the tests of every chapter's explorers ask alike."""

from __future__ import annotations

from typing import Any

from dtlib.views.explorer import Explorer


def silent_moves(explorer: Explorer) -> list[tuple[str, dict[str, Any]]]:
    """Each control, with the setting at which moving it by one changes no readout."""
    silent = []
    for at in explorer.states():
        here = explorer.at(at).readouts
        for position, control in enumerate(explorer.controls):
            there = (*at[:position], at[position] + 1, *at[position + 1 :])
            if explorer.within(there) == there and explorer.at(there).readouts == here:
                silent.append((control.name, explorer.values(at)))
    return silent
