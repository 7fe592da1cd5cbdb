"""What the tests of every chapter's explorers ask alike."""

from __future__ import annotations

from typing import Any

from dtlib.views.explorer import Explorer


def silent_moves(explorer: Explorer) -> list[tuple[str, dict[str, Any]]]:
    """Each control, with the setting at which moving it by one changes no readout."""
    silent, readouts = [], {at: explorer.at(at).readouts for at in explorer.states()}
    for at, here in readouts.items():
        for position, control in enumerate(explorer.controls):
            there = (*at[:position], at[position] + 1, *at[position + 1 :])
            if readouts.get(there) == here:
                silent.append((control.name, explorer.values(at)))
    return silent
