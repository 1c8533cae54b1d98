"use strict";
// Draws a trace (the block "trace"; selection_page.cc writes it) and lets one move in it. Text gets into the
// page as text alone: by textContent.
(() => {
  const trace = JSON.parse(document.getElementById("trace").textContent);
  const { layers, heads, edges, texts, frames, needle } = trace;
  const rows = layers * heads;
  const columns = edges.length - 1;
  const $ = (id) => document.getElementById(id);
  const number = (n) => n.toLocaleString("en");

  // ---- The cells: for each frame and row a list of [column, columns, level], and the scores' range
  const data = Uint8Array.from(atob(trace.data), (c) => c.charCodeAt(0));
  const view = new DataView(data.buffer);
  const starts = new Array(frames.length * rows);
  let at = 0;
  const take = () => {
    let x = 0, unit = 1;
    for (;;) {
      const byte = data[at++];
      x += (byte & 127) * unit;
      if (byte < 128) return x;
      unit *= 128;
    }
  };
  const readRow = (visit) => {
    const head = take();
    const range = head % 2 ? [view.getFloat32(at, true), view.getFloat32(at + 4, true)] : null;
    if (range) at += 8;
    let next = 0;
    for (let n = (head - head % 2) / 2; n > 0; --n) {
      const column = next + take();
      next = column + take();
      const level = data[at++];
      if (visit) visit(column, next, level);
    }
    return range;
  };
  for (let i = 0; i < starts.length; ++i) {
    starts[i] = at;
    readRow(null);
  }
  const tokenFrames = frames.map((f, i) => i).filter((i) => !frames[i].prompt);

  // Levels of a frame: -1 not seen, 0 seen without a choice, 1 .. 255.
  const levelsOf = (frame) => {
    const levels = new Int16Array(rows * columns).fill(-1);
    const ranges = new Array(rows);
    for (let row = 0; row < rows; ++row) {
      at = starts[frame * rows + row];
      ranges[row] = readRow((begin, end, level) => levels.fill(level, row * columns + begin, row * columns + end));
    }
    return { levels, ranges };
  };
  let totals = null;  // how often each row chose a column, and saw it, over all tokens
  const count = () => {
    if (totals) return totals;
    const chosen = new Int32Array(rows * columns), seen = new Int32Array(rows * columns);
    for (const frame of tokenFrames) {
      for (let row = 0; row < rows; ++row) {
        at = starts[frame * rows + row];
        readRow((begin, end, level) => {
          for (let c = begin; c < end; ++c) {
            ++seen[row * columns + c];
            if (level > 0) ++chosen[row * columns + c];
          }
        });
      }
    }
    const choices = chosen.some((n) => n > 0);
    const times = choices ? chosen : seen;
    const levels = new Int16Array(rows * columns);
    for (let i = 0; i < levels.length; ++i) {
      levels[i] = times[i] ? 1 + Math.round(254 * times[i] / tokenFrames.length) : choices && seen[i] ? 0 : -1;
    }
    return totals = { levels, times, choices };
  };

  // ---- What is shown
  const state = { frame: Math.max(0, tokenFrames.length ? tokenFrames[0] : 0), shade: "score",
                  row: 0, column: 0, held: false };
  state.column = needle ? needle.begin : 0;
  let shown = null;  // {levels, ranges}

  const printing = matchMedia("print"), dark = matchMedia("(prefers-color-scheme: dark)");
  // Light to dark on paper, dark to light on a dark ground: more is farther from the ground.
  const palette = () => dark.matches && !printing.matches
    ? { ground: [27, 32, 38], seen: [70, 80, 92], low: [38, 70, 106], high: [190, 226, 255] }
    : { ground: [255, 255, 255], seen: [205, 210, 216], low: [178, 208, 238], high: [8, 40, 92] };
  const colour = (p, level) => {
    if (level < 0) return p.ground;
    if (level === 0) return p.seen;
    const t = state.shade === "plain" && !frames[state.frame].prompt ? 1 : (level - 1) / 254;
    return p.low.map((x, i) => Math.round(x + t * (p.high[i] - x)));
  };
  const css = (rgb) => `rgb(${rgb.join(",")})`;

  // Both drawings have room for numbers at the left and below; sizes are in CSS pixels.
  const map = $("map"), matrix = $("matrix");
  const left = 30, below = 20;
  let rowHeight = 3, cell = 14, ratio = 1, mapWidth = 0, mapHeight = 0;
  const fit = (canvas, width, height) => {
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
  };
  const layout = () => {
    ratio = window.devicePixelRatio || 1;
    rowHeight = Math.max(1, Math.min(14, Math.round(640 / rows)));
    mapHeight = rows * rowHeight + layers - 1;
    const room = document.documentElement.clientWidth - 40 - left;
    cell = Math.max(4, Math.min(18, Math.floor(mapHeight / layers), room / heads));
    fit(matrix, heads * cell + left, layers * cell + below);
    map.style.width = "100%";
    const width = map.clientWidth;
    fit(map, width, mapHeight + below);
    mapWidth = width - left;
    draw();
  };
  const rowTop = (row) => row * rowHeight + Math.floor(row / heads);
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  const triangle = (context, points) => {
    context.fillStyle = variable("--accent");
    context.beginPath();
    points.forEach(([x, y], i) => i ? context.lineTo(x, y) : context.moveTo(x, y));
    context.fill();
  };
  // Every so many of n get a label, so that labels of this size do not touch.
  const every = (n, size, room) => {
    for (let unit = 1; ; unit *= 10) {
      for (const k of [1, 2, 5]) if (k * unit >= n * size / room) return k * unit;
    }
  };

  const image = document.createElement("canvas");
  const drawMap = () => {
    const p = palette(), context = map.getContext("2d");
    context.clearRect(0, 0, left + mapWidth, mapHeight + below);
    context.fillStyle = css(p.ground);
    context.fillRect(left, 0, mapWidth, mapHeight);
    image.width = columns;
    image.height = rows;
    const pixels = new ImageData(columns, rows);
    const table = [];
    for (let level = -1; level < 256; ++level) table.push(colour(p, level));
    for (let i = 0; i < shown.levels.length; ++i) {
      pixels.data.set(table[shown.levels[i] + 1], 4 * i);
      pixels.data[4 * i + 3] = 255;
    }
    image.getContext("2d").putImageData(pixels, 0, 0);
    context.imageSmoothingEnabled = false;
    for (let layer = 0; layer < layers; ++layer) {
      context.drawImage(image, 0, layer * heads, columns, heads,
                        left, rowTop(layer * heads), mapWidth, heads * rowHeight);
    }
    const x = (column) => left + column / columns * mapWidth;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = variable("--soft");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let layer = 0; layer < layers; layer += every(layers, 13, mapHeight)) {
      context.fillText(layer, left - 9, rowTop(layer * heads) + Math.max(6, heads * rowHeight / 2));
    }
    context.textBaseline = "top";
    for (let column = 0; column < columns; column += every(columns, 52, mapWidth)) {
      context.textAlign = column ? "center" : "left";
      if (x(column) < left + mapWidth - 26) context.fillText(number(edges[column]), x(column), mapHeight + 7);
    }
    context.strokeStyle = variable("--line");
    context.lineWidth = 1;
    context.strokeRect(left - 0.5, 0.5, mapWidth, mapHeight - 1);
    if (needle) {
      context.strokeStyle = variable("--needle");
      context.lineWidth = 2;
      context.strokeRect(x(needle.begin) - 1, 1, x(needle.end) - x(needle.begin) + 2, mapHeight - 2);
    }
    const row = rowTop(state.row) + rowHeight / 2, middle = x(state.column + 0.5);
    triangle(context, [[left - 1, row], [left - 7, row - 4], [left - 7, row + 4]]);
    triangle(context, [[middle, mapHeight], [middle - 4, mapHeight + 6], [middle + 4, mapHeight + 6]]);
    context.strokeStyle = variable("--accent");
    const wide = Math.max(4, x(state.column + 1) - x(state.column));
    context.strokeRect(x(state.column) - 1, rowTop(state.row) - 1.5, wide + 2, rowHeight + 3);
  };
  const drawMatrix = () => {
    const p = palette(), context = matrix.getContext("2d");
    context.clearRect(0, 0, left + heads * cell, layers * cell + below);
    context.fillStyle = variable("--line");
    context.fillRect(left, 0, heads * cell, layers * cell);
    for (let row = 0; row < rows; ++row) {
      context.fillStyle = css(colour(p, shown.levels[row * columns + state.column]));
      context.fillRect(left + row % heads * cell + 0.5, Math.floor(row / heads) * cell + 0.5, cell - 1, cell - 1);
    }
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = variable("--soft");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (let layer = 0; layer < layers; layer += every(layers, 13, layers * cell)) {
      context.fillText(layer, left - 9, (layer + 0.5) * cell);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (let head = 0; head < heads; head += every(heads, 16, heads * cell)) {
      context.fillText(head, left + (head + 0.5) * cell, layers * cell + 5);
    }
    context.strokeStyle = variable("--accent");
    context.lineWidth = 2;
    context.strokeRect(left + state.row % heads * cell, Math.floor(state.row / heads) * cell, cell, cell);
  };

  const range = (column) => `tokens ${number(edges[column])}\u2013${number(edges[column + 1] - 1)}`;
  const isNeedle = (column) => needle && column >= needle.begin && column < needle.end;
  const say = () => {
    const level = shown.levels[state.row * columns + state.column];
    const frame = frames[state.frame];
    let what = "not seen";
    if (state.shade === "count") {
      const times = totals.times[state.row * columns + state.column];
      what = `${totals.choices ? "chosen" : "seen"} by ${times} of ${tokenFrames.length} tokens`;
    } else if (frame.prompt) {
      if (level > 0) what = `seen by about ${Math.round(100 * (level - 1) / 254)}% of these tokens`;
    } else if (level === 0) {
      what = "seen without a choice";
    } else if (level > 0) {
      what = "chosen";
      const scores = shown.ranges[state.row];
      if (scores) {
        const score = scores[0] + (level - 1) / 254 * (scores[1] - scores[0]);
        let better = 0;
        for (let c = 0; c < columns; ++c) better += shown.levels[state.row * columns + c] > level ? 1 : 0;
        what = `chosen, score about ${score.toPrecision(3)} (number ${better + 1} of this head)`;
      }
    }
    let by = 0;
    for (let row = 0; row < rows; ++row) by += shown.levels[row * columns + state.column] > 0 ? 1 : 0;
    $("what").textContent =
      `Layer ${Math.floor(state.row / heads)}, head ${state.row % heads}; chunk ${state.column} ` +
      `(${range(state.column)})` +
      `${isNeedle(state.column) ? ", holds the needle" : ""}: ${what}. ${by} of ${rows} heads chose it.` +
      (state.held ? " (held)" : "");
    $("matrix-title").textContent = `Heads (across), layers (down): chunk ${state.column}`;
    const words = $("words"), text = texts[state.column];
    const [begin, end] = needleIn(state.column);
    const mark = document.createElement("mark");
    mark.textContent = text.slice(begin, end);
    words.textContent = "";
    words.append(text.slice(0, begin), ...(begin < end ? [mark] : []), text.slice(end));
    words.scrollTop = begin < end ? mark.offsetTop - words.offsetTop - words.clientHeight / 2 : 0;
  };
  // What of a column's text is the needle's: all of it, or where it goes on in the next column, an end.
  const needleIn = (column) => {
    if (!isNeedle(column)) return [0, 0];
    const text = texts[column], whole = text.indexOf(needle.text);
    if (whole >= 0) return [whole, whole + needle.text.length];
    for (let n = Math.min(text.length, needle.text.length); n > 0; --n) {
      if (column === needle.begin && text.endsWith(needle.text.slice(0, n))) return [text.length - n, text.length];
      if (column === needle.end - 1 && text.startsWith(needle.text.slice(-n))) return [0, n];
    }
    return needle.begin < column && column < needle.end - 1 ? [0, text.length] : [0, 0];
  };
  const visible = (text) => text.replace(/\n/g, "\u21b5");
  const caption = () => {
    const frame = frames[state.frame], element = $("caption");
    element.textContent = "";
    if (!frame) {
      element.textContent = "The trace holds no tokens.";
    } else if (state.shade === "count") {
      element.textContent = `All ${tokenFrames.length} traced tokens together.`;
    } else if (frame.prompt) {
      element.textContent =
        `Prompt, tokens ${number(frame.begin)}\u2013${number(frame.end - 1)}: the share of them that saw each chunk.`;
    } else {
      const quote = (text) => {
        const q = document.createElement("q");
        q.textContent = visible(text);
        return q;
      };
      const index = tokenFrames.indexOf(state.frame) + 1;
      element.append(`Token ${index} of ${tokenFrames.length}: the query of `, quote(frame.text),
                     ` (position ${number(frame.begin)})`,
                     ...(frame.next ? [", after which came ", quote(frame.next)] : []), ".");
    }
    const p = palette(), prompt = frame && frame.prompt && state.shade !== "count";
    $("ramp").style.background = state.shade === "plain" && !prompt ? css(p.high)
      : `linear-gradient(90deg, ${css(p.low)}, ${css(p.high)})`;
    $("seen").style.background = css(p.seen);
    $("ramp-text").textContent = prompt ? "share of tokens, none to all"
      : state.shade === "count" ? "share of tokens, few to all"
      : state.shade === "plain" ? "chosen" : "chosen, by score: lowest to highest of the head";
    $("needle-key").hidden = !needle;
  };
  const draw = () => {
    if (!shown || !mapWidth) return;
    drawMap();
    drawMatrix();
    say();
    caption();
  };
  const describe = () => {
    let any = 0;
    const byColumn = new Int32Array(columns);
    shown.levels.forEach((level, i) => { if (level > 0) { ++any; ++byColumn[i % columns]; } });
    const best = byColumn.indexOf(Math.max(...byColumn));
    const text = any ? `Most heads (${byColumn[best]} of ${rows}) chose chunk ${best}, ${range(best)}` +
      `${isNeedle(best) ? ", which holds the needle" : ""}.` : "No head chose a chunk.";
    map.setAttribute("aria-label",
                     `Map of ${layers} layers of ${heads} heads against ${columns} chunks of the text. ${text}`);
    matrix.setAttribute("aria-label", `Matrix of ${layers} layers and ${heads} heads for one chunk.`);
  };
  const refresh = () => {
    if (!frames.length) return caption();
    shown = state.shade === "count" ? count() : levelsOf(state.frame);
    describe();
    draw();
  };

  // ---- Moving
  const slider = $("frame");
  slider.max = Math.max(0, frames.length - 1);
  slider.value = state.frame;
  const go = (frame) => {
    state.frame = Math.max(0, Math.min(frames.length - 1, frame));
    slider.value = state.frame;
    if (state.shade === "count") {
      state.shade = "score";
      $("shade").value = "score";
    }
    refresh();
  };
  slider.addEventListener("input", () => go(Number(slider.value)));
  $("back").addEventListener("click", () => go(state.frame - 1));
  $("on").addEventListener("click", () => go(state.frame + 1));
  $("shade").addEventListener("change", () => {
    state.shade = $("shade").value;
    refresh();
  });
  const clamp = (x, n) => Math.max(0, Math.min(n - 1, x));
  const move = (row, column) => {
    state.row = clamp(row, rows);
    state.column = clamp(column, columns);
    draw();
  };
  const pointAt = (canvas, event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left - left, event.clientY - box.top];
  };
  const pointMap = (event) => {
    const [x, y] = pointAt(map, event);
    const step = heads * rowHeight + 1, layer = clamp(Math.floor(y / step), layers);
    move(layer * heads + clamp(Math.floor((y - layer * step) / rowHeight), heads),
         Math.floor(x / mapWidth * columns));
  };
  const pointMatrix = (event) => {
    const [x, y] = pointAt(matrix, event);
    move(clamp(Math.floor(y / cell), layers) * heads + clamp(Math.floor(x / cell), heads), state.column);
  };
  for (const [canvas, point] of [[map, pointMap], [matrix, pointMatrix]]) {
    canvas.addEventListener("pointermove", (event) => {
      if (!state.held && event.pointerType !== "touch") point(event);
    });
    canvas.addEventListener("click", (event) => {
      state.held = event.detail > 0 && canvas === map ? !state.held : state.held;
      point(event);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
                      PageUp: [-heads, 0], PageDown: [heads, 0], Home: [0, -columns], End: [0, columns] };
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (steps[event.key]) {
        move(state.row + steps[event.key][0], state.column + steps[event.key][1]);
      } else if (event.key === "," || event.key === ".") {
        go(state.frame + (event.key === "," ? -1 : 1));
      } else if ((event.key === "n" || event.key === "N") && needle) {
        move(state.row, needle.begin);
      } else if (event.key === "Enter" || event.key === " ") {
        state.held = !state.held;
        draw();
      } else {
        return;
      }
      event.preventDefault();
    });
  }
  window.addEventListener("resize", layout);
  dark.addEventListener("change", draw);
  for (const event of ["beforeprint", "afterprint"]) window.addEventListener(event, draw);
  printing.addEventListener("change", draw);
  refresh();
  layout();
})();
