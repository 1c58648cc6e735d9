const refuse = () => Promise.reject(new Error("this page loads nothing"));
const loader = { load: refuse, sanitize: refuse, http: refuse, file: refuse };

// Data come as columns and rows, which takes a third of the room.
function unpack(spec) {
  for (const [name, { columns, rows }] of Object.entries(spec.datasets)) {
    spec.datasets[name] = rows.map(row => Object.fromEntries(columns.map((column, place) => [column, row[place]])));
  }
  return spec;
}

for (const chart of document.querySelectorAll("[data-spec]")) {
  const spec = unpack(JSON.parse(document.getElementById(chart.dataset.spec).textContent));
  // ast: expressions are interpreted, not compiled, so that the page may forbid itself to run text as code.
  vegaEmbed(chart, spec, { mode: "vega-lite", actions: false, renderer: "svg", ast: true, loader })
    .then(() => { chart.dataset.drawn = "yes"; })
    .catch(error => { chart.textContent = "This figure could not be drawn: " + error; });
}
