// The host of an explorer on a published page: every state was computed when the book was built.
export function mountBaked(root, { spec, baked }) {
  const limit = (position, list) => Math.min(position, list.length - 1);
  const ask = (asked, draw) => {
    const at = [];
    const counts = [];
    let node = baked.index;
    for (const position of asked) {
      counts.push(node.length);
      at.push(limit(position, node));
      node = node[at.at(-1)];
    }
    const [numbers, readouts, altText] = node;
    const tables = Object.fromEntries(baked.names.map((name, i) => [name, baked.pool[numbers[i]]]));
    draw({ at, counts, tables, readouts, alt_text: altText });
  };

  // The address names an explorer's controls as ?ring.ranks=4&ring.step=3#explorer-ring
  const key = (control) => `${spec.name}.${control.name}`;
  const address = (at) => {
    const url = new URL(window.location.href);
    spec.controls.forEach((control, i) => url.searchParams.set(key(control), control.texts[at[i]]));
    url.hash = `explorer-${spec.name}`;
    return url;
  };
  const given = new URLSearchParams(window.location.search);
  const start = spec.controls.map((control, i) => {
    const position = control.texts.indexOf(given.get(key(control)));
    return position < 0 ? spec.start[i] : position;
  });

  let timer = null;
  const remember = (at) => {
    clearTimeout(timer); // browsers refuse many changes of the address a second
    timer = setTimeout(() => window.history.replaceState(null, "", address(at)), 300);
  };
  const draw = mountExplorer(root, spec, { ask, remember, link: (at) => address(at).href });
  if (start.join() !== spec.start.join()) ask(start, draw);
}
