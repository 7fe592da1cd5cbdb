// The published page: predictions at once, explorers (and with them the chart code) when they come near the view.
const data = (node) => JSON.parse(node.querySelector("script[type='application/json']").textContent);

for (const node of document.querySelectorAll("[data-prediction]")) mountPrediction(node, data(node));

const near = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    import("./explorers.js").then(({ mountBaked }) => mountBaked(target, data(target)));
  }
}, { rootMargin: "600px" });
for (const node of document.querySelectorAll("[data-explorer]")) near.observe(node);
