// A prediction: the reader writes a number, then sees the answer and what a near miss got wrong.
function mountPrediction(root, spec) {
  const make = (tag, attributes, ...children) => {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children);
    return node;
  };
  const say = (value) => Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-3)
    ? value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e")
    : Number(value.toPrecision(6)).toLocaleString("en-US", { maximumFractionDigits: 6 });
  const id = `dt-predict-${spec.name}-${Math.random().toString(36).slice(2)}`;
  const input = make("input", { id, type: "text", inputMode: "text", autocomplete: "off", spellcheck: false });
  const verdict = make("div", { className: "dt-verdict" });
  verdict.setAttribute("role", "status");

  function answered(event) {
    event.preventDefault();
    const text = input.value.trim().replace(/[,_\s]/g, "").replace(/[×x]10\^?/i, "e").replace(/%$/, "");
    const value = text === "" ? NaN : Number(text);
    if (!Number.isFinite(value)) {
      verdict.textContent = `Write a number, like 42, 0.5 or 6.5e12 (in ${spec.unit}).`;
      return;
    }
    const off = (wanted) => Math.abs(value - wanted) / (Math.abs(wanted) || 1);
    const right = off(spec.answer) <= spec.tolerance;
    const slip = right ? undefined : spec.slips.find(([wrong]) => off(wrong) <= Math.min(spec.tolerance, 0.005));
    const ratio = value / spec.answer;
    const miss = right ? "You had it." : ratio > 0 && (ratio >= 1.95 || ratio <= 0.51)
      ? `You were ${say(Number((ratio > 1 ? ratio : 1 / ratio).toPrecision(2)))} times too ${ratio > 1 ? "high" : "low"}.`
      : `You were ${say(Number((100 * off(spec.answer)).toPrecision(2)))}% too ${value > spec.answer ? "high" : "low"}.`;
    verdict.replaceChildren(
      make("p", {}, `You wrote ${say(value)}; it is `, make("strong", {}, `${say(spec.answer)} ${spec.unit}`), `. ${miss}`),
      ...(slip ? [make("p", {}, slip[1])] : []), make("p", {}, spec.because));
    root.dataset.outcome = right ? "right" : slip ? "slip" : "wrong";
  }

  root.classList.add("dt-prediction");
  root.addEventListener("keydown", (event) => event.stopPropagation());
  root.replaceChildren(
    make("p", { className: "dt-kind" }, "Predict first"),
    make("form", { onsubmit: answered },
      make("label", { htmlFor: id }, spec.question),
      make("div", { className: "dt-answer" }, input, make("span", {}, spec.unit), make("button", { type: "submit" }, "Reveal"))),
    verdict);
}
