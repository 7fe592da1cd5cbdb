// An explorer: controls, readouts, chart, sentence, table. The same in every host.
//
// spec   what does not change: title, controls, readouts, columns, the Vega chart, the starting positions
// host   ask(at, draw): calls draw(state) with the state at these positions of the controls, now or later
//        remember(at), link(at): optional; keep the positions in the page's address

const element = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
};

let made = 0; // makes the ids of labels unique when a figure is shown twice

function sliderControl(control, id, moved) {
  const input = element("input", { type: "range", id, min: 0, max: control.texts.length - 1, step: 1 });
  const shown = element("output", { for: id, "aria-live": "off" }); // the sentence below speaks for all
  input.addEventListener("input", () => moved(Number(input.value)));
  return {
    node: element("div", { class: "dt-control" }, element("label", { for: id }, control.label), shown, input),
    set(position, count) {
      input.max = count - 1;
      input.value = position;
      input.setAttribute("aria-valuetext", control.texts[position]);
      shown.textContent = control.texts[position];
    },
  };
}

function choiceControl(control, id, moved) {
  const buttons = control.texts.map((text, position) => {
    const radio = element("input", { type: "radio", name: id, value: position });
    radio.addEventListener("change", () => moved(position));
    return [element("label", {}, radio, element("span", {}, text)), radio];
  });
  return {
    node: element("fieldset", { class: "dt-control dt-choice" }, element("legend", {}, control.label),
      ...buttons.map(([label]) => label)),
    set(position, count) {
      buttons.forEach(([label, radio], i) => {
        radio.checked = i === position;
        label.hidden = i >= count;
      });
    },
  };
}

function playButton(step, atEnd, rewind) {
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    button.textContent = "▶ Play";
  };
  const button = element("button", {
    type: "button",
    onclick() {
      if (timer) return stop();
      if (atEnd()) rewind();
      button.textContent = "❚❚ Pause";
      timer = setInterval(() => (button.isConnected && !atEnd() ? step() : stop()), 800);
    },
  }, "▶ Play");
  return { button, stop };
}

function numbersTable(columns) {
  const body = element("div", { class: "dt-tables" });
  const print = (value, format) =>
    typeof value === "number" && format ? Vega.defaultLocale().format(format)(value) : String(value ?? "");
  let tables = {};
  const fill = () => {
    if (!details.open) return; // hidden tables cost no time while a control moves
    body.replaceChildren(...Object.values(tables).map((table) => {
      const names = Object.keys(columns).filter((name) => name in table);
      if (!names.length) return "";
      const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, columns[name].label)));
      const rows = table[names[0]].map((_, row) => element("tr", {}, ...names.map((name) =>
        element("td", {}, print(table[name][row], columns[name].format)))));
      return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
    }));
  };
  const details = element("details", { class: "dt-numbers", ontoggle: () => fill() },
    element("summary", {}, "The numbers as a table"), body);
  return { node: details, set: (next) => { tables = next; fill(); } };
}

function rowsOf(table) {
  const names = Object.keys(table);
  return names.length ? table[names[0]].map((_, row) => Object.fromEntries(names.map((name) => [name, table[name][row]]))) : [];
}

const NARROW = 300; // px: a legend in two columns would be cut

function chart(spec) {
  const holder = element("div", { class: "dt-chart", role: "img" });
  const view = new Vega.View(Vega.parse(spec), { renderer: "svg", container: holder });
  let width = 0;
  // A chart that is drawn before it is attached has width 0, so the first drawing waits for a size.
  const resize = () => {
    const now = Math.floor(holder.clientWidth);
    if (now && now !== width) view.signal("narrow", now < NARROW).width((width = now)).run();
    holder.setAttribute("role", "img");
  };
  new ResizeObserver(resize).observe(holder);
  return {
    node: holder,
    set(tables, altText) {
      for (const [name, table] of Object.entries(tables)) view.data(name, rowsOf(table));
      if (width) view.run();
      else resize();
      holder.setAttribute("role", "img"); // Vega says graphics-document
      holder.setAttribute("aria-label", altText);
    },
  };
}

function mountExplorer(root, spec, host) {
  const number = ++made;
  const at = [...spec.start];
  const players = [];
  let picture = null;

  const move = (position, value) => {
    at[position] = value;
    host.ask([...at], draw);
    host.remember?.([...at]);
  };
  const moved = (position) => (value) => {
    players.forEach((player) => player.stop());
    move(position, value);
  };

  const controls = spec.controls.map((control, position) => {
    const make = control.kind === "choice" ? choiceControl : sliderControl;
    return make(control, `dt-${spec.name}-${number}-${control.name}`, moved(position));
  });
  let counts = spec.controls.map((control) => control.texts.length);
  spec.controls.forEach((control, position) => {
    if (!control.play) return;
    const player = playButton(() => move(position, at[position] + 1), () => at[position] >= counts[position] - 1,
      () => move(position, 0));
    players.push(player);
    controls[position].node.append(player.button);
  });

  const outputs = spec.readouts.map(({ name, label }) => ({ label, node: element("output", { "data-readout": name, "aria-live": "off" }) }));
  const sentence = element("p", { class: "dt-says", "aria-live": "polite" });
  const alarm = element("p", { class: "dt-error", role: "alert", hidden: true });
  const numbers = numbersTable(spec.columns);
  const actions = element("div", { class: "dt-actions" }, element("button", {
    type: "button", class: "dt-reset", onclick: () => {
      players.forEach((player) => player.stop());
      at.splice(0, at.length, ...spec.start);
      host.ask([...at], draw);
      host.remember?.([...at]);
    },
  }, "Reset"));
  if (host.link) actions.append(element("button", {
    type: "button", class: "dt-link", async onclick(event) {
      const link = host.link([...at]);
      try {
        await navigator.clipboard.writeText(link);
        event.target.textContent = "Link copied";
      } catch {
        window.prompt("The address of this state:", link); // no clipboard without a secure context
      }
      setTimeout(() => (event.target.textContent = "Copy link"), 2000);
    },
  }, "Copy link"));

  function draw(state) {
    alarm.hidden = !state.error;
    if (state.error) return void (alarm.textContent = state.error);
    at.splice(0, at.length, ...state.at);
    counts = state.counts;
    controls.forEach((control, position) => control.set(at[position], counts[position]));
    outputs.forEach((output, i) => (output.node.textContent = state.readouts[i]));
    sentence.textContent = state.alt_text;
    numbers.set(state.tables);
    picture.set(state.tables, state.alt_text);
    root.dataset.at = at.join(",");
  }

  // JupyterLab takes the arrow keys from a focused slider unless the event stops here.
  root.addEventListener("keydown", (event) => event.stopPropagation());
  picture = chart(spec.vega);
  root.classList.add("dt-explorer");
  root.replaceChildren(
    element("figcaption", { class: "dt-title" }, spec.title),
    element("div", { class: "dt-controls" }, ...controls.map((control) => control.node)),
    element("dl", { class: "dt-readouts" }, ...outputs.map(({ label, node }) =>
      element("div", {}, element("dt", {}, label), element("dd", {}, node)))),
    picture.node, sentence, alarm, numbers.node, actions);
  host.ask([...at], draw);
  return draw;
}
