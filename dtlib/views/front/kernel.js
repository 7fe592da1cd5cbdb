// The host of an explorer in a notebook: the kernel computes each state.
export default {
  render({ model, el }) {
    const root = document.createElement("figure");
    el.append(root);
    const draw = mountExplorer(root, model.get("spec"), {
      ask(at, drawn) {
        if (at.join() === model.get("shown").at?.join()) drawn(model.get("shown"));
        model.set("asked", at);
        model.save_changes();
      },
    });
    const show = () => draw(model.get("shown"));
    model.on("change:shown", show);
    return () => model.off("change:shown", show);
  },
};
