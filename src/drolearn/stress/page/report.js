// The switches, the slider and the downloads. Texts enter the page as text, never as HTML.

const { charts, number, place } = window.drolearn;
const { tables, regret, level } = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const every = (selector) => [...document.querySelectorAll(selector)];
const percent = (x) => (x === null || x === undefined ? "–" : `${Number((100 * x).toFixed(x >= 0.0995 && x < 0.995 ? 0 : 1))}%`);

/** The rows of a table as objects. */
function records(name) {
  const table = tables[name];
  if (!table) return [];
  return table.data.map((row) => Object.fromEntries(table.columns.map((column, k) => [column, row[k]])));
}
const curve = records("curve"), groups = records("groups"), radii = records("radii");
const models = [...new Set(curve.map((row) => row.model))];

const chosen = () => ({
  loss: byId("loss").value,
  divergence: byId("divergence").value,
  shown: every("input[name=model]:checked").map((box) => box.value),
});
const matches = (row, { loss, divergence }) => row.loss_name === loss && row.divergence === divergence;

// -- the slider and its reading ----------------------------------------------------------------

let balls = [];   // the rows of the curve of each radius, one for each model
let view = null;  // the chart of the curve

function balls_of(choice) {
  const rows = curve.filter((row) => matches(row, choice));
  const count = new Map();
  return rows.reduce((all, row) => {
    const k = count.get(row.model) ?? 0;
    count.set(row.model, k + 1);
    (all[k] ??= []).push({ ...row, at: k });
    return all;
  }, []);
}

/** "Radius ρ = 1: every subset with at least 50% of the rows." */
function size(row) {
  if (!row.share && row.rho === null) return "All weight is on the largest loss.";
  if (row.rho === null) return `The mean of the worst ${percent(row.share)} of the rows.`;
  const ball = `Radius ρ = ${number(row.rho)}`;
  if (row.rho === 0) return `${ball}: no shift, the mean of all rows.`;
  return row.share === null ? `${ball}.` : `${ball}: the ball holds every subset with at least ${percent(row.share)} of the rows.`;
}

/** The largest change with a name that the ball holds. */
function change(row, divergence) {
  const known = radii.filter((each) => each.divergence === divergence &&
    (row.rho === null ? row.share !== null && each.covers >= row.share : each.rho !== null && each.rho <= row.rho));
  return known.length ? `A ball of this size also holds this change: ${known[known.length - 1].meaning}.` : "";
}

function reading(row) {
  const error = row.error === null ? "" : `, ${percent(row.error)} wrong labels`;
  // Ends that are not finite are null.
  const low = row.low === null ? "−∞" : number(row.low), high = row.high === null ? "∞" : number(row.high);
  const ends = row.low === null && row.high === null ? "no interval"
    : `${Number((100 * level).toPrecision(4))}% interval ${low} to ${high}`;
  return `${row.model}: ${number(row.loss)} (${ends})${error}`;
}

function add(parent, tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  parent.append(element);
  return element;
}

function read() {
  const { divergence, shown } = chosen();
  const slider = byId("radius"), k = Number(slider.value);
  const rows = balls[k].filter((row) => shown.includes(row.model));
  const box = byId("reading");
  box.replaceChildren();
  add(box, "p", size(balls[k][0]));
  const list = add(box, "ul", "");
  for (const row of rows) {
    const item = add(list, "li", "");
    add(item, "i", "").className = "dot";
    item.firstChild.dataset.dot = models.indexOf(row.model) % 7;
    item.append(reading(row));
    if (row.note) add(item, "small", row.note);
  }
  const named = change(balls[k][0], divergence);
  if (named) add(box, "p", named);
  slider.setAttribute("aria-valuetext", [size(balls[k][0]), ...rows.map(reading)].join(" "));
  if (view) view.signal("at", k).runAsync();
}

/** The ball nearest to the pointer. */
function follow(event) {
  const svg = byId("chart-curve").querySelector("svg");
  const box = svg.getBoundingClientRect();
  const wide = (event.clientX - box.left) * (svg.viewBox.baseVal.width / box.width);
  const at = Math.log(view.scale("x").invert(wide - view.origin()[0]));
  const away = (rows) => Math.abs(Math.log(place(rows[0])) - at);
  byId("radius").value = balls.reduce((best, rows, k) => (away(rows) < away(balls[best]) ? k : best), 0);
  read();
}

// -- charts and switches -----------------------------------------------------------------------

const embed = (id, spec) => window.vegaEmbed(`#${id}`, spec, { actions: false, renderer: "svg", ast: true, defaultStyle: false });

async function draw() {
  const choice = chosen(), { loss, shown } = choice;
  const what = `${regret ? "regret" : "loss"} (${loss})`;
  for (const each of every(".what")) each.textContent = what;
  const drawn = [
    ["chart-curve", charts.curve, balls.flat()],
    ["chart-groups", charts.groups, groups.filter((row) => matches(row, choice))],
  ];
  for (const [id, make, rows] of drawn) {
    const element = byId(id);
    if (!element) continue;
    const spec = shown.length ? make(rows, models, shown, what) : null;
    if (!spec) {
      element.replaceChildren();
      if (id === "chart-curve") view = null;
      continue;
    }
    const result = await embed(id, { ...spec, description: element.closest("figure").querySelector("figcaption").textContent });
    if (id === "chart-curve") {
      view = result.view;
      element.querySelector("svg").onpointermove = follow;
      element.querySelector("svg").onpointerdown = follow;
    }
  }
}

async function show() {
  const { loss, divergence, shown } = chosen();
  for (const element of every("[data-divergence]")) {
    const { dataset } = element;
    element.hidden = dataset.divergence !== divergence || (dataset.loss ?? loss) !== loss ||
      (dataset.model !== undefined && !shown.includes(dataset.model));
  }
  const before = balls.length;
  balls = balls_of(chosen());
  const slider = byId("radius");
  slider.max = balls.length - 1;
  if (before !== balls.length) slider.value = middle();
  await draw();
  read();
  document.documentElement.dataset.shown = `${loss} ${divergence}`;
}

/** The ball of every half of the rows, at first. */
function middle() {
  const away = (rows) => Math.abs(Math.log(place(rows[0]) / 0.5));
  return balls.reduce((best, rows, k) => (away(rows) < away(balls[best]) ? k : best), 0);
}

// -- downloads ---------------------------------------------------------------------------------

/** One cell of a CSV file. Texts that a spreadsheet would run as a formula begin with an apostrophe. */
function cell(value) {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) && Number.isNaN(Number(value)) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function download(name) {
  const { columns, data } = tables[name];
  const lines = [columns, ...data].map((row) => row.map(cell).join(","));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([`${lines.join("\n")}\n`], { type: "text/csv" }));
  link.download = `${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// -- start -------------------------------------------------------------------------------------

for (const cell of every(".bar")) cell.style.backgroundSize = `${100 * cell.dataset.share}% 4px`;
for (const element of every(".theme, .switches, .download, .reader")) element.hidden = false;
for (const button of every(".download")) button.onclick = () => download(button.dataset.table);
for (const input of every("input[name=theme]")) {
  input.onchange = () => { document.documentElement.dataset.theme = input.value; };
}
document.querySelector(".switches").onsubmit = (event) => event.preventDefault();
document.querySelector(".switches").onchange = show;
byId("radius").oninput = read;
await show();
