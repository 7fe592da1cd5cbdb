const endsWith = (text, unit, fold) => fold(text).endsWith(fold(unit));
const anyCase = (text) => text.toLowerCase();
const butBits = (text) => text.replace(/[^b]/gi, anyCase); // capitals do not matter, except that b is a bit and B a byte

// The number in what a reader wrote, or NaN. Its unit may follow; a comma or a space separates thousands and nothing else.
function numberOf(written, unit) {
  let text = written.trim().replace("−", "-");
  if (endsWith(text, unit, butBits)) text = text.slice(0, -unit.length).trimEnd();
  if (unit === "times") text = text.replace(/\s*[x×]$/i, "");
  if (/^[-+]?0[,_\s]/.test(text)) return NaN; // 0,125 has a comma for a point
  text = text.replace(/[,_\s](?=\d{3}(?!\d))/g, "").replace(/\s*[×x*]\s*10\^/i, "e");
  return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : NaN;
}

// A prediction: the reader writes a number, then sees the answer and what a near miss got wrong.
function mountPrediction(root, spec) {
  const make = (tag, attributes, ...children) => {
    const node = Object.assign(document.createElement(tag), attributes);
    node.append(...children);
    return node;
  };
  // Whole numbers are shown whole, others to four significant digits, or as many as it takes to differ from ``beside``.
  const say = (value, beside = NaN) => {
    if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en-US");
    const enough = [4, 5, 6, 7].find((digits) => value.toPrecision(digits) !== beside.toPrecision(digits)) ?? 8;
    return Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3
      ? value.toExponential(enough - 1).replace(/\.?0+e/, "e").replace("e+", "e")
      : Number(value.toPrecision(enough)).toLocaleString("en-US", { maximumFractionDigits: 8 });
  };
  const id = `dt-predict-${spec.name}-${Math.random().toString(36).slice(2)}`;
  const input = make("input", { id, type: "text", inputMode: "text", autocomplete: "off", spellcheck: false });
  const verdict = make("div", { className: "dt-verdict" });
  verdict.setAttribute("role", "status");

  function answered(event) {
    event.preventDefault();
    const value = numberOf(input.value, spec.unit);
    if (!Number.isFinite(value)) {
      verdict.textContent = endsWith(input.value.trim(), spec.unit, anyCase) && !endsWith(input.value.trim(), spec.unit, butBits)
        ? `The answer is in ${spec.unit}: B is a byte, b a bit.`
        : `Write a number, like 42, 0.5, 1,024 or 6.5e12 (in ${spec.unit}).`;
      delete root.dataset.outcome;
      return;
    }
    const off = (wanted) => Math.abs(value - wanted) / (Math.abs(wanted) || 1);
    const right = off(spec.answer) <= spec.tolerance;
    const hint = right ? undefined : spec.hints.filter(([wrong]) => off(wrong) <= spec.tolerance)
      .sort(([one], [other]) => off(one) - off(other))[0];
    const rule = right || off(spec.answer) > 0.05 ? ""
      : spec.tolerance ? ` An answer within ${100 * spec.tolerance}% counts.` : " A count has to be exact.";
    const shown = say(spec.answer, right ? NaN : value);
    const ratio = value / spec.answer;
    const miss = right ? "You had it." : ratio < 1e-9 || ratio > 1e9 ? "That is far off."
      : ratio >= 1.95 || ratio <= 0.51
      ? `You were ${say(Number((ratio > 1 ? ratio : 1 / ratio).toPrecision(2)))} times too ${ratio > 1 ? "high" : "low"}.`
      : `You were ${say(Number((100 * off(spec.answer)).toPrecision(2)))}% too ${value > spec.answer ? "high" : "low"}.`;
    verdict.replaceChildren(
      make("p", {}, `You wrote ${say(value)}; it is `, make("strong", {}, `${shown} ${spec.unit}`), `. ${miss}${rule}`),
      ...(hint ? [make("p", {}, hint[1])] : []), make("p", {}, spec.because));
    root.dataset.outcome = right ? "right" : hint ? "hint" : "wrong";
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
