"use strict";
(() => {
	const shownRows = 12;

	// Tables can be sorted by each column, with the mouse and the keyboard.
	function sortable(table) {
		const heads = [...table.tHead.rows[0].cells];
		heads.forEach((head, column) => {
			const button = document.createElement("button");
			button.type = "button";
			button.append(...head.childNodes);
			head.append(button);
			button.addEventListener("click", () => {
				const numeric = head.classList.contains("n");
				const down = head.hasAttribute("aria-sort") ? head.getAttribute("aria-sort") === "ascending" : numeric;
				heads.forEach((other) => other.removeAttribute("aria-sort"));
				head.setAttribute("aria-sort", down ? "descending" : "ascending");
				const key = (row) => numeric ? Number(row.cells[column].dataset.sort) : row.cells[column].textContent;
				const order = (a, b) => numeric ? a - b : a.localeCompare(b, "en", {numeric: true});
				const body = table.tBodies[0];
				const rows = [...body.rows].sort((a, b) => order(key(a), key(b)) * (down ? -1 : 1));
				body.append(...rows);
				limit(table);
			});
		});
	}

	// Long tables show their first rows until the reader asks for all.
	function limit(table) {
		const all = table.dataset.all === "true";
		[...table.tBodies[0].rows].forEach((row, i) => { row.hidden = !all && i >= shownRows; });
	}

	function collapsible(table) {
		const rows = table.tBodies[0].rows.length;
		if (rows <= shownRows + 3) {
			table.dataset.all = "true";
			return;
		}
		limit(table);
		const button = document.createElement("button");
		button.type = "button";
		button.className = "more";
		const name = () => { button.textContent = table.dataset.all === "true" ? `Show only ${shownRows} rows` : `Show all ${rows} rows`; };
		button.addEventListener("click", () => {
			table.dataset.all = table.dataset.all === "true" ? "false" : "true";
			limit(table);
			name();
		});
		name();
		table.parentElement.after(button);
	}

	document.querySelectorAll("table").forEach((table) => {
		sortable(table);
		collapsible(table);
	});
	document.querySelectorAll("td[data-bar]").forEach((cell) => {
		cell.style.setProperty("--share", `${Number(cell.dataset.bar) * 100}%`);
		cell.classList.add("barred");
	});

	// Charts
	const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
	const scales = {
		bytes: [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]],
		count: [[1e9, "G"], [1e6, "M"], [1e3, "k"]],
	};
	function amount(value, unit) {
		if (value === null || value === undefined) return "–";
		const step = scales[unit === "bytes" ? "bytes" : "count"].find(([size]) => value >= size);
		const digits = (v) => String(Number(v.toPrecision(3)));
		const suffix = unit === "bytes" ? " B" : "";
		return step ? `${digits(value / step[0])} ${step[1]}` : digits(value) + suffix;
	}
	const increments = {
		bytes: Array.from({length: 50}, (_, i) => 2 ** i),
		count: Array.from({length: 15}, (_, i) => [1, 2, 5].map((n) => n * 10 ** i)).flat(),
	};
	const time = (value, span) => {
		if (value === null || value === undefined) return "–";
		return span < 1 ? `${Number((value * 1000).toFixed(3))} ms` : `${Number(value.toFixed(3))} s`;
	};

	// A strip at the top shows the spans in which packets were dropped.
	const shade = (marks) => (u) => {
		u.ctx.save();
		u.ctx.fillStyle = colour("lost");
		for (const mark of marks) {
			const from = Math.max(u.bbox.left, u.valToPos(mark.from, "x", true));
			const to = Math.min(u.bbox.left + u.bbox.width, u.valToPos(mark.to, "x", true));
			u.ctx.fillRect(from, u.bbox.top, Math.max(2, to - from), 5 * devicePixelRatio);
		}
		u.ctx.restore();
	};

	// Each bar has its value above it.
	const values = (chart) => (u) => {
		u.ctx.save();
		u.ctx.fillStyle = colour("soft");
		u.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
		u.ctx.textAlign = "center";
		chart.series[0].values.forEach((value, i) => {
			if (value > 0) u.ctx.fillText(amount(value, chart.unit), u.valToPos(i, "x", true), u.valToPos(value, "y", true) - 4 * devicePixelRatio);
		});
		u.ctx.restore();
	};

	function options(chart, width) {
		const bars = chart.kind === "bars";
		const axis = {stroke: colour("soft"), grid: {stroke: colour("line"), width: 1}, ticks: {stroke: colour("line"), width: 1}, font: "12px system-ui, sans-serif"};
		const series = chart.series.map((s) => ({
			label: s.label, stroke: colour(s.colour), width: bars || s.bars ? 0 : 1.5,
			fill: bars || s.bars ? colour(s.colour) : colour(`${s.colour}-fill`) || undefined, points: {show: false},
			paths: bars || s.bars ? uPlot.paths.bars({size: [bars ? 0.8 : 0.9, 60, 1]}) : uPlot.paths.stepped({align: 1}),
			value: (_, value) => amount(value, chart.unit),
		}));
		const span = chart.x[chart.x.length - 1] - chart.x[0];
		const label = (value) => bars ? chart.labels[value] || "" : time(value, span);
		return {
			width, height: bars ? 180 : chart.series[0].bars ? 110 : 190, padding: [bars ? 18 : 8, 12, 0, 0], legend: {show: !bars},
			scales: {
				x: {time: false, range: bars ? (_, min, max) => [min - 0.6, max + 0.6] : undefined},
				y: {range: (_, min, max) => [0, max > 0 ? max * 1.08 : 1]},
			},
			axes: [
				{...axis, size: 32, grid: {show: !bars, stroke: colour("line"), width: 1}, space: bars ? 64 : 60, incrs: bars ? [1, 2, 3, 4, 5, 10] : undefined, values: (_, all) => all.map(label)},
				{...axis, size: 68, space: 24, incrs: increments[chart.unit], values: (_, all) => all.map((v) => amount(v, chart.unit))},
			],
			series: [{label: "Time", value: (_, v) => v === null ? "–" : label(v)}, ...series],
			cursor: {sync: bars ? undefined : {key: "time"}, points: {show: false}, drag: {x: !bars, y: false}},
			hooks: {drawClear: chart.marks ? [shade(chart.marks)] : [], draw: bars ? [values(chart)] : []},
		};
	}

	const charts = JSON.parse(document.getElementById("charts").textContent);
	let drawn = [];
	function draw() {
		drawn.forEach((plot) => plot.destroy());
		drawn = charts.map((chart) => {
			const place = document.getElementById(chart.id);
			return new uPlot(options(chart, place.clientWidth), [chart.x, ...chart.series.map((s) => s.values)], place);
		});
	}
	draw();
	let width = document.body.clientWidth;
	new ResizeObserver(() => {
		if (document.body.clientWidth !== width) {
			width = document.body.clientWidth;
			draw();
		}
	}).observe(document.body);
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
