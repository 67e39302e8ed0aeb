// The charts, as specifications of Vega-Lite. Names of models and groups are only ever data.

const INK = "var(--ink)", SOFT = "var(--soft)", LINE = "var(--line)";
const SHARES = [1, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01];

const config = {
  background: "transparent",
  font: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
  view: { stroke: null },
  axis: {
    labelColor: SOFT, titleColor: SOFT, gridColor: LINE, domainColor: LINE, tickColor: LINE,
    labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
  },
};

const colour = (models, shown) => ({
  field: "model", type: "nominal", legend: null,
  scale: { domain: shown, range: shown.map((name) => `var(--model-${models.indexOf(name) % 7})`) },
});

/** From the eighth model on, colours repeat and lines are dashed. */
const dash = (models, shown) => ({
  field: "model", type: "nominal", legend: null,
  scale: { domain: shown, range: shown.map((name) => (models.indexOf(name) < 7 ? [1, 0] : [6, 3])) },
});

/** Where a ball lies on the horizontal axis: at its share; at that of KL where it has none. */
const place = (row) => Math.max(row.share ?? Math.exp(-row.rho), 1e-6);

/** Three significant digits with a true minus sign, as in the tables. */
const number = (x) => (x === null || x === undefined ? "–" : String(Number(x.toPrecision(3))).replace("-", "−"));

/** The share and the radius below each tick; numbers only, so no name becomes an expression. */
function ticks(rows) {
  const first = rows.filter((row) => row.model === rows[0].model);
  const low = Math.min(...first.map(place));
  const found = SHARES.filter((share) => share >= 0.99 * low).map((share) => {
    const away = (row) => Math.abs(Math.log(place(row) / share));
    const row = first.reduce((best, each) => (away(each) < away(best) ? each : best));
    return { share, row, away: away(row) };
  });
  const near = first.length > 20 ? found.filter((tick) => tick.away < 0.05) : first.map((row) => ({ share: place(row), row }));
  const text = ({ share, row }) => [
    row.share === null ? "" : `${Number((100 * share).toPrecision(2))}%`,
    row.rho === null ? "" : `ρ ${number(row.rho)}`,
  ].filter(Boolean);
  const cases = near.map((tick) => `datum.value === ${tick.share} ? ${JSON.stringify(text(tick))} : `);
  return { values: near.map((tick) => tick.share), labels: cases.join("") + "''" };
}

function curve(rows, models, shown) {
  // All weight on the largest loss is infinitely far to the right.
  const finite = rows.filter((row) => row.share !== 0);
  const values = finite.filter((row) => shown.includes(row.model)).map((row) => ({ ...row, x: place(row) }));
  if (!values.length) return null;
  const { values: at, labels } = ticks(finite);
  const x = {
    field: "x", type: "quantitative",
    scale: { type: "log", reverse: true, nice: false },
    axis: {
      values: at, labelExpr: labels, grid: false, labelOverlap: "greedy", labelPadding: 6,
      title: null,
    },
  };
  const y = { field: "loss", type: "quantitative", scale: { zero: false }, title: null };
  const color = colour(models, shown);
  const chosen = { filter: "datum.at === at" };
  const band = {
    mark: { type: "area", opacity: 0.16, aria: false },
    encoding: { x, y: { ...y, field: "low" }, y2: { field: "high" }, color },
  };
  return {
    config, width: "container", height: 320,
    params: [{ name: "at", value: 0 }],
    data: { values },
    layer: [
      ...(values.some((row) => row.low !== null && row.high !== null) ? [band] : []),
      { mark: { type: "line", strokeWidth: 2.2, aria: false }, encoding: { x, y, color, strokeDash: dash(models, shown) } },
      {
        transform: [chosen, { aggregate: [{ op: "min", field: "x", as: "x" }] }],
        mark: { type: "rule", color: SOFT, strokeDash: [3, 3], aria: false },
        encoding: { x },
      },
      {
        transform: [chosen],
        mark: { type: "point", filled: true, size: 70, opacity: 1, aria: false },
        encoding: { x, y, color },
      },
    ],
  };
}

function groups(rows, models, shown, what) {
  const most = 30;  // as in sections.py
  const name = (row) => `${row.column}: ${row.group}`;
  const first = rows.filter((row) => row.model === shown[0]).slice(0, most).map(name);
  const values = rows
    .filter((row) => shown.includes(row.model) && first.includes(name(row)))
    .map((row) => ({ ...row, name: name(row) }));
  const y = {
    field: "name", type: "nominal", sort: first, title: null,
    axis: { labelLimit: Math.min(260, window.innerWidth * 0.4), labelColor: INK, grid: true, ticks: false, domain: false },
  };
  const x = { field: "loss", type: "quantitative", scale: { zero: false }, axis: { title: null, tickCount: 6 } };
  const color = colour(models, shown);
  const yOffset = { field: "model", type: "nominal", sort: shown };
  const tooltip = [
    { field: "model", title: "model" }, { field: "loss", title: what, format: ".3r" },
    { field: "low", format: ".3r" }, { field: "high", format: ".3r" },
    { field: "rows", title: "rows", format: "," }, { field: "share", title: "share now", format: ".1%" },
    { field: "worst_share", title: "share in the worst case", format: ".1%" },
  ];
  return {
    config, width: "container", height: first.length * Math.max(22, 12 * shown.length),
    data: { values },
    encoding: { y, yOffset, color },
    layer: [
      {
        mark: { type: "rule", strokeWidth: 2, opacity: 0.55, aria: false },
        encoding: { x: { ...x, field: "low" }, x2: { field: "high" } },
      },
      { mark: { type: "point", filled: true, size: 60, opacity: 1, aria: false }, encoding: { x, tooltip } },
    ],
  };
}

window.drolearn = { charts: { curve, groups }, number, place };
