"""Views in a notebook: an explorer or a prediction as a Jupyter widget, computed by the kernel."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import anywidget
import traitlets
from ipywidgets import DOMWidget

from dtlib.views import encode, front_end
from dtlib.views.explorer import Explorer
from dtlib.views.lab import Lab
from dtlib.views.panel import LabPanel
from dtlib.views.prediction import Prediction

__all__ = ["ExplorerWidget", "PredictionWidget", "widget"]


class ExplorerWidget(anywidget.AnyWidget):
    """Answers each position of the controls that the front end asks for; an exception is shown in
    the figure.
    """

    _esm = traitlets.Unicode().tag(sync=True)
    _css = front_end.css()
    spec = traitlets.Dict().tag(sync=True)
    asked = traitlets.List().tag(sync=True)
    shown = traitlets.Dict().tag(sync=True)

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        super().__init__(
            _esm=front_end.notebook_explorer(),  # bundled only now: importing stays light
            spec=encode.explorer_spec(explorer),
            asked=list(explorer.start),
            shown=encode.shown_state(explorer, explorer.start),
        )

    @traitlets.observe("asked")
    def _answer(self, change: Any) -> None:
        try:
            self.shown = encode.shown_state(self._explorer, change["new"])
        except Exception as error:  # nobody catches it here: the reader sees it in the figure
            self.shown = {"error": f"{type(error).__name__}: {error}"}


class PredictionWidget(anywidget.AnyWidget):
    """A prediction; it needs nothing of the kernel."""

    spec = traitlets.Dict().tag(sync=True)
    _esm = front_end.notebook_prediction()
    _css = front_end.css()

    def __init__(self, prediction: Prediction) -> None:
        super().__init__(spec=encode.prediction_spec(prediction))


@singledispatch
def widget(view: Any) -> DOMWidget:
    """The widget that shows ``view``."""
    raise TypeError(f"no widget shows a {type(view).__name__}")


widget.register(Explorer, ExplorerWidget)
widget.register(Prediction, PredictionWidget)
widget.register(Lab, LabPanel)
