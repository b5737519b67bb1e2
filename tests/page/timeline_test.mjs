// The timeline: zoom and pan, search, click-through, sums, its links with the other parts, narrow screens, 200 000 events.
import assert from 'node:assert/strict';
import { pack } from '../../web/sample/timeline.mjs';
import { open, rowsOf, sampleDocument, test, textsOf } from './browser.mjs';

const kMostPageBytes = 3e6;
const kPageBytes = 0.8e6; // of the page without data, at most

/** The other direction of what the sample packs. */
function unpack(text) {
  const values = [];
  let [value, coded, factor] = [0, 0, 1];
  for (const byte of Buffer.from(text, 'base64')) {
    coded += (byte & 0x7f) * factor;
    factor *= 0x80;
    if (byte >= 0x80) continue;
    value += coded % 2 === 0 ? coded / 2 : -(coded + 1) / 2;
    values.push(value);
    [coded, factor] = [0, 1];
  }
  return values;
}

function eventsOf(timeline) {
  const columns = Object.fromEntries(Object.entries(timeline.events).filter(([, text]) => typeof text === 'string').map(([key, text]) => [key, unpack(text)]));
  return columns.start_ns.map((start, i) => ({
    place: i, start, end: start + columns.ns[i], lane: timeline.lanes[columns.lane[i]], name: timeline.names[columns.name[i]], cls: timeline.classes[columns.class[i]],
    op: columns.op[i], cause: columns.cause[i] }));
}

const document_ = sampleDocument('--runs', '1');
const [run] = document_.runs;
const events = eventsOf(run.timeline);
const kernels = events.filter(({ name }) => name.kind === 'kernel');
const canvasOf = (page) => page.locator('#timeline canvas.lanes');
/** What the canvas shows once it was drawn again: an input is answered in the frame after it. */
const viewOf = (page) => canvasOf(page).evaluate(({ dataset }) => new Promise((done) => {
  const read = () => done({ from: Number(dataset.from), to: Number(dataset.to), event: Number(dataset.event) });
  requestAnimationFrame(() => requestAnimationFrame(read));
}));
const placeOf = (page, event) => canvasOf(page).evaluate((canvas, at) => canvas.placeOf(at), event);
/** Until the picture has followed. */
const settle = (page) => page.evaluate(() => new Promise((done) => { setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 200); }));
const numberIn = (text) => Number(text.replaceAll(/[^\d]/g, ''));

async function opened(data = document_, options = {}) {
  const opened_ = await open(data, { reducedMotion: 'reduce', ...options });
  await opened_.page.locator('#timeline').evaluate((element) => element.scrollIntoView());
  await settle(opened_.page);
  return opened_;
}

test('shows the step nearest to the median, and all of its lanes', async () => {
  const { page, close } = await opened();
  const [step] = run.timeline.steps;
  const { from, to, event } = await viewOf(page);
  assert.ok(from <= step.start_ns && to >= step.end_ns && to - from < 1.1 * (step.end_ns - step.start_ns));
  assert.equal(event, -1);
  const colours = await canvasOf(page).evaluate((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return new Set(Array.from({ length: data.length / 4 }, (_, i) => (data[4 * i] << 16) + (data[4 * i + 1] << 8) + data[4 * i + 2])).size;
  });
  assert.ok(colours > 12, `${colours} colours`);
  await close();
});

test('a click on a gap shows it', async () => {
  const { page, close } = await opened();
  const [gap] = run.gaps;
  await page.locator('#gaps .row').first().click();
  await settle(page);
  const { from, to } = await viewOf(page);
  assert.ok(from <= gap.start_ns && to >= gap.end_ns && to - from < 4 * (gap.end_ns - gap.start_ns), `${from} to ${to}`);
  assert.match(await page.evaluate(() => window.location.hash), /^#timeline\?run=0-[^&]+&from=\d+&to=\d+$/);
  await close();
});

test('zooms and moves by wheel, drag, keys and buttons, and stays inside', async () => {
  const { page, close } = await opened();
  const canvas = canvasOf(page);
  const box = await canvas.boundingBox();
  const whole = await viewOf(page);
  const length = (view) => view.to - view.from;
  await page.mouse.move(box.x + 600, box.y + 60);
  await page.mouse.wheel(0, -200);
  await settle(page);
  assert.deepEqual(await viewOf(page), whole, 'a wheel that scrolls past does not zoom');
  assert.match(await page.locator('#timeline .timeline .status').innerText(), /Ctrl/);
  await page.locator('#timeline').evaluate((element) => element.scrollIntoView());
  await page.keyboard.down('Control');
  await page.mouse.wheel(0, -100);
  await page.keyboard.up('Control');
  await settle(page);
  const closer = await viewOf(page);
  assert.ok(length(closer) < 0.6 * length(whole), 'Ctrl and the wheel zoom');
  const { x, y } = await canvas.boundingBox();
  await page.mouse.move(x + 700, y + 200);
  await page.mouse.down();
  await page.mouse.move(x + 500, y + 200, { steps: 4 });
  await page.mouse.up();
  await settle(page);
  const moved = await viewOf(page);
  assert.ok(moved.from > closer.from && Math.abs(length(moved) - length(closer)) < 2, 'a drag moves');
  await canvas.focus();
  await page.keyboard.press('d');
  await page.keyboard.press('+');
  await settle(page);
  const keyed = await viewOf(page);
  assert.ok(keyed.from > moved.from && length(keyed) < length(moved), 'keys move and zoom');
  for (let i = 0; i < 60; ++i) await page.keyboard.press('w');
  await settle(page);
  assert.ok(length(await viewOf(page)) >= 100, 'no closer than 100 ns');
  await page.getByRole('button', { name: 'Show the whole step' }).click();
  await settle(page);
  assert.deepEqual(await viewOf(page), whole);
  for (let i = 0; i < 5; ++i) await page.getByRole('button', { name: 'Zoom out' }).click();
  await settle(page);
  assert.ok((await viewOf(page)).from >= whole.from - 1e9 && length(await viewOf(page)) < 1.1 * length(whole));
  await close();
});

/** The sample's timeline as that of six ranks: the lanes of each, and what ran on them. */
function ofRanks(count) {
  const data = structuredClone(document_);
  const { timeline } = data.runs[0];
  const { lanes } = timeline;
  timeline.lanes = Array.from({ length: count }, (_, rank) => lanes.map((lane) => ({ ...lane, rank }))).flat();
  for (const [key, text] of Object.entries(timeline.events)) {
    if (typeof text !== 'string') continue;
    const values = unpack(text);
    timeline.events[key] = pack(values.flatMap((value) => Array.from({ length: count }, (_, rank) =>
      (key === 'lane' ? value + rank * lanes.length : key === 'cause' && value >= 0 ? value * count + rank : value))));
  }
  timeline.events.count *= count;
  return data;
}

test('lanes of ranks are named, summed up each, and folded where there are many', async () => {
  const two = await opened(ofRanks(2));
  const ranks = two.page.locator('#timeline').getByLabel('Ranks');
  assert.equal(await ranks.inputValue(), 'all');
  const [first, second] = [kernels[0].place * 2, kernels[0].place * 2 + 1];
  assert.ok((await placeOf(two.page, first))[1] < (await placeOf(two.page, second))[1], 'one rank below the other');
  const captions = await two.page.locator('#timeline table.sums caption').allInnerTexts();
  assert.deepEqual(captions.map((text) => text.split(':')[0].split(',')[0]), ['rank 0', 'rank 1']);
  await ranks.selectOption('1');
  await settle(two.page);
  assert.equal(await placeOf(two.page, first), null, 'the first rank is not drawn');
  assert.notEqual(await placeOf(two.page, second), null);
  await two.close();
  const six = await opened(ofRanks(6));
  assert.equal(await six.page.locator('#timeline').getByLabel('Ranks').inputValue(), 'devices');
  assert.equal(await six.page.locator('#timeline details.sums').count(), 6, 'sums of each wait behind a click');
  const step = events.find(({ name }) => name.kind === 'step').place * 6;
  assert.equal(await placeOf(six.page, step), null, 'ranges are folded away');
  assert.notEqual(await placeOf(six.page, kernels[0].place * 6 + 5), null);
  await six.page.locator('#timeline').getByLabel('Ranks').selectOption('all');
  await settle(six.page);
  assert.notEqual(await placeOf(six.page, step), null);
  await six.close();
});

test('search counts what it finds and goes from match to match', async () => {
  const { page, close } = await opened();
  const box = page.getByLabel('Search the timeline');
  await box.fill('layernorm');
  await settle(page);
  const scopes = textsOf(run.ops, 'scope'), kinds = textsOf(run.ops, 'kind'), phases = textsOf(run.ops, 'phase');
  const textOf = ({ name, cls, op }) => {
    const row = run.ops.op.indexOf(op);
    return `${name.text} ${name.kind} ${cls} ${row < 0 ? '' : `${scopes[row]} ${phases[row]} ${kinds[row]}`}`.toLowerCase();
  };
  const found = events.filter((event) => textOf(event).includes('layernorm'));
  assert.ok(found.length > 100);
  assert.equal(numberIn(await page.locator('#timeline .controls .status').innerText()), found.length);
  await box.press('Enter');
  assert.equal((await viewOf(page)).event, found[0].place);
  await page.getByRole('button', { name: 'Next match' }).click();
  assert.equal((await viewOf(page)).event, found[1].place);
  await page.getByRole('button', { name: 'Previous match' }).click();
  await page.getByRole('button', { name: 'Previous match' }).click();
  assert.equal((await viewOf(page)).event, found.at(-1).place, 'round the end');
  await canvasOf(page).focus();
  await page.keyboard.press('n');
  assert.equal((await viewOf(page)).event, found[0].place);
  await page.keyboard.press('Escape');
  assert.equal(await box.inputValue(), '');
  await box.fill('nothing is called so');
  await settle(page);
  assert.match(await page.locator('#timeline .controls .status').innerText(), /no match/);
  await close();
});

test('a click on a kernel says its op, its launch, its call and its line of the program', async () => {
  const { page, close } = await opened();
  const kernel = kernels.reduce((longest, event) => (event.end - event.start > longest.end - longest.start ? event : longest));
  const [x, y] = await placeOf(page, kernel.place);
  await canvasOf(page).click({ position: { x, y } });
  assert.equal((await viewOf(page)).event, kernel.place);
  const text = await page.locator('#timeline .event').innerText();
  const row = run.ops.op.indexOf(kernel.op);
  for (const part of [kernel.name.text, textsOf(run.ops, 'scope')[row], textsOf(run.ops, 'shapes')[row], `#${kernel.op} `, 'cudaLaunchKernel on main thread', 'registers per thread', 'stream 7']) {
    assert.ok(text.includes(part), part);
  }
  await canvasOf(page).focus();
  await page.keyboard.press('Enter');
  assert.ok((await page.getByRole('dialog').innerText()).includes('time at the roof'));
  await page.keyboard.press('Escape');
  assert.equal(await page.getByRole('dialog').count(), 0);
  await close();
});

test('arrows walk along a lane and from lane to lane', async () => {
  const { page, close } = await opened();
  await canvasOf(page).focus();
  await page.keyboard.press('ArrowRight');
  const first = events[(await viewOf(page)).event];
  assert.equal(first.lane.kind, 'device');
  await page.keyboard.press('ArrowRight');
  const second = events[(await viewOf(page)).event];
  assert.ok(second.lane === first.lane && second.start >= first.end);
  await page.keyboard.press('ArrowLeft');
  assert.equal((await viewOf(page)).event, first.place);
  await page.keyboard.press('ArrowUp');
  assert.notEqual(events[(await viewOf(page)).event].lane, first.lane);
  await page.keyboard.press('End');
  const last = events[(await viewOf(page)).event];
  await page.keyboard.press('Home');
  assert.ok(events[(await viewOf(page)).event].start < last.start);
  const said = await page.locator('#timeline .timeline .status').innerText();
  assert.ok(said.includes(events[(await viewOf(page)).event].name.short ?? events[(await viewOf(page)).event].name.text), 'it is said aloud');
  await close();
});

test('a span is summed up by class, and nothing is counted twice', async () => {
  const { page, close } = await opened();
  const box = await page.locator('#timeline canvas.ruler').boundingBox();
  const whole = await viewOf(page);
  await page.mouse.move(box.x + 400, box.y + 8);
  await page.mouse.down();
  await page.mouse.move(box.x + 700, box.y + 8, { steps: 4 });
  await page.mouse.up();
  await settle(page);
  assert.match(await page.locator('#timeline .timeline .status').innerText(), /selected: busy .*, idle /);
  const kGutter = 150;
  const timeAt = (x) => whole.from + ((x - kGutter) / (box.width - kGutter)) * (whole.to - whole.from);
  const [from, to] = [timeAt(400), timeAt(700)];
  const cut = ({ start, end }) => Math.max(0, Math.min(end, to) - Math.max(start, from));
  const gemm = kernels.filter(({ cls }) => cls === 'gemm').reduce((sum, event) => sum + cut(event), 0);
  const rows = await page.locator('#timeline .sums tbody tr').evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
  const seconds = (text) => { const [, value, unit] = text.match(/^([\d.]+) (\S*)s$/); return Number(value) * { '': 1, m: 1e-3, µ: 1e-6, n: 1e-9 }[unit]; };
  const row = (name) => rows.find(([title]) => title === name);
  assert.ok(Math.abs(seconds(row('gemm')[2]) - 1e-9 * gemm) < 2e-3 * 1e-9 * gemm, `${row('gemm')[2]} and ${gemm} ns`);
  const alone = rows.filter((cells) => cells[4] !== '').reduce((sum, cells) => sum + seconds(cells[4]), 0);
  const parts = alone + seconds(row('two or more at once')[2]) + seconds(row('idle')[2]);
  assert.ok(Math.abs(parts - 1e-9 * (to - from)) < 3e-3 * 1e-9 * (to - from), 'alone + shared + idle is the span');
  await canvasOf(page).focus();
  await page.keyboard.press('Escape');
  assert.match(await page.locator('#timeline h3').allInnerTexts().then((all) => all.join()), /Step 3/);
  await close();
});

test('a chosen op is marked in the tables, the roofline, the memory and the timeline', async () => {
  const { page, close } = await opened();
  const pictureOf = async (selector) => {
    const chart = page.locator(selector).first();
    await chart.evaluate((element) => element.scrollIntoView({ block: 'center' }));
    await chart.locator('canvas').first().waitFor();
    await settle(page);
    return chart.locator('canvas').first().evaluate((canvas) => canvas.toDataURL());
  };
  const [roofline, memory] = [await pictureOf('#roofline .chart'), await pictureOf('#memory .chart')];
  const row = (await rowsOf(page, 'ops'))[2].row;
  await page.locator(`#ops .row[data-row="${row}"]`).click();
  await page.keyboard.press('Escape');
  const { event } = await viewOf(page);
  assert.equal(events[event].op, run.ops.op[row], 'the timeline goes to the op');
  assert.notEqual(await pictureOf('#roofline .chart'), roofline);
  assert.notEqual(await pictureOf('#memory .chart'), memory);
  const kernel = kernels.find(({ op }) => op !== run.ops.op[row]);
  await canvasOf(page).evaluate((element) => element.scrollIntoView({ block: 'center' }));
  await settle(page);
  const [x, y] = await placeOf(page, kernel.place);
  await canvasOf(page).click({ position: { x: Math.max(x, 152), y } });
  const chosen = run.ops.op.indexOf(events[(await viewOf(page)).event].op);
  assert.equal(await page.locator('#ops .row.marked').count(), 1);
  assert.equal(Number(await page.locator('#ops .row.marked').getAttribute('data-row')), chosen);
  assert.equal(await page.locator('#kernels .row.marked').count(), 1);
  assert.equal(await page.locator('#blocks .row.marked').count(), 1);
  await page.locator('#kernels .row').first().click();
  assert.match(await page.locator('#timeline .timeline .status').innerText(), /events marked/);
  await close();
});

test('an op chosen in the roofline or in the memory is found in the timeline', async () => {
  const { page, close } = await opened();
  const chartOf = async (selector) => {
    const chart = page.locator(selector).first();
    await chart.evaluate((element) => element.scrollIntoView({ block: 'center' }));
    await chart.locator('canvas').first().waitFor();
    return chart;
  };
  for (const name of ['blocks', 'phases']) await page.locator('#roofline').getByLabel(name, { exact: true }).uncheck();
  const roofline = await chartOf('#roofline .chart');
  const [x, y] = await roofline.evaluate((element) => element.firstPoint());
  await roofline.click({ position: { x, y } });
  const number = Number((await page.getByRole('dialog').innerText()).match(/op\s+#([\d\u202f]+)/)[1].replaceAll(/\D/g, ''));
  await page.keyboard.press('Escape');
  assert.equal(events[(await viewOf(page)).event].op, number);
  const memory = await chartOf('#memory .chart');
  const { width, height } = await memory.boundingBox();
  await memory.click({ position: { x: width / 2, y: height / 2 } });
  const { event } = await viewOf(page);
  assert.notEqual(events[event].op, number);
  const places = run.memory.events.op;
  assert.ok(Math.abs(events[event].op - places.at(-1) / 2) < 0.1 * places.at(-1), 'about the middle of the step');
  await close();
});

test('all events are a table, too', async () => {
  const { page, close } = await opened();
  const all = page.locator('#timeline details.events');
  assert.equal(await all.locator('[role=grid]').count(), 0, 'made when it is asked for');
  await all.locator('summary').click();
  assert.equal(numberIn(await all.locator('.status').innerText()), events.length);
  await all.getByLabel('Search Events').fill('adamw');
  await all.locator('.row').first().click();
  assert.match(events[(await viewOf(page)).event].name.text, /adamw/);
  await close();
});

test('many streams share a lane, and events keep theirs', async () => {
  const whole = structuredClone(document_);
  const { timeline } = whole.runs[0];
  const kStreams = 40;
  const first = timeline.lanes.length;
  for (let i = 0; i < kStreams; ++i) timeline.lanes.push({ name: `branch ${i}`, kind: 'device', device: 'cuda:0' });
  const stream = timeline.lanes.findIndex(({ name }) => name === 'stream 7');
  const lanes = unpack(timeline.events.lane).map((lane, i) => (lane === stream && i % 3 === 0 ? first + (i % kStreams) : lane));
  timeline.events.lane = pack(lanes);
  const { page, close } = await opened(whole);
  assert.ok((await canvasOf(page).boundingBox()).height < 700);
  const kernel = kernels.filter(({ place }) => lanes[place] >= first).reduce((longest, event) => (event.end - event.start > longest.end - longest.start ? event : longest));
  const [x, y] = await placeOf(page, kernel.place);
  await canvasOf(page).click({ position: { x, y } });
  assert.equal((await viewOf(page)).event, kernel.place);
  assert.ok((await page.locator('#timeline .event').innerText()).includes(timeline.lanes[lanes[kernel.place]].name));
  await close();
});

test('a phone: no sideways scrolling, a finger moves, two fingers zoom', async () => {
  const { page, close } = await opened(document_, { viewport: { width: 390, height: 800 }, hasTouch: true, isMobile: true });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= window.innerWidth));
  await canvasOf(page).evaluate((element) => element.scrollIntoView({ block: 'center' }));
  const { x, y, width } = await canvasOf(page).boundingBox();
  assert.ok(width <= 390);
  const touch = await page.context().newCDPSession(page);
  const fingers = (type, ...places) => touch.send('Input.dispatchTouchEvent', { type, touchPoints: places.map((at, id) => ({ x: x + at, y: y + 90, id })) });
  const whole = await viewOf(page);
  await fingers('touchStart', 150, 200);
  for (let i = 1; i <= 6; ++i) await fingers('touchMove', 150 - 15 * i, 200 + 15 * i);
  await fingers('touchEnd');
  await settle(page);
  const closer = await viewOf(page);
  assert.ok(closer.to - closer.from < 0.6 * (whole.to - whole.from), 'two fingers zoom');
  await fingers('touchStart', 250);
  for (let i = 1; i <= 6; ++i) await fingers('touchMove', 250 - 20 * i);
  await fingers('touchEnd');
  await settle(page);
  const moved = await viewOf(page);
  assert.ok(moved.from > closer.from && Math.abs(moved.to - moved.from - closer.to + closer.from) < 2, 'a finger moves');
  await close();
});

test('a timeline that is missing or damaged is one sentence', async () => {
  for (const [break_, sentence] of [[(timeline) => { timeline.events.start_ns = '!!'; }, /cannot be read: column start_ns/], [(timeline) => { timeline.events.count += 7; }, /cannot be read/],
                                    [(timeline) => { delete timeline.events.lane; }, /column lane/], [(timeline, whole) => { whole.timeline = null; }, /has no timeline/]]) {
    const whole = structuredClone(document_);
    break_(whole.runs[0].timeline, whole.runs[0]);
    const { page, close } = await open(whole);
    assert.match(await page.locator('section#timeline .absent, .missing li:has(#timeline)').innerText(), sentence);
    await close();
  }
  const whole = structuredClone(document_);
  Object.assign(whole.runs[0].timeline, { lanes: whole.runs[0].timeline.lanes.slice(0, 3), names: [], classes: ['a'], launches: null, series: [{ name: 'x', count: 5, time_ns: 'AA', value: '' }] });
  const { page, close } = await open(whole);
  const text = await page.locator('#timeline').innerText();
  assert.ok(!text.includes('could not be drawn') && !text.includes('NaN') && !text.includes('undefined'), text);
  await close();
});

test('on paper the picture stays, its controls go', async () => {
  const { page, close } = await opened(document_, { colorScheme: 'dark' });
  await page.evaluate(() => window.dispatchEvent(new Event('beforeprint')));
  await page.emulateMedia({ media: 'print' });
  assert.equal(await page.locator('#timeline .controls').isVisible(), false);
  assert.equal(await canvasOf(page).isVisible(), true);
  const corner = await canvasOf(page).evaluate((canvas) => [...canvas.getContext('2d').getImageData(1, 1, 1, 1).data.slice(0, 3)]);
  assert.deepEqual(corner, [255, 255, 255], 'light on paper');
  assert.ok(await page.locator('#timeline .sums').isVisible());
  await close();
});

test('a page of a step with 20 000 events stays under 3 MB', () => {
  const whole = sampleDocument('--runs', '1', '--events', '20000');
  assert.ok(whole.runs[0].timeline.events.count >= 20_000);
  const bytes = Buffer.byteLength(JSON.stringify(whole));
  console.log(`# ${whole.runs[0].timeline.events.count} events: document ${(bytes / 1e6).toFixed(2)} MB, of it timeline ${(JSON.stringify(whole.runs[0].timeline).length / 1e6).toFixed(2)} MB`);
  assert.ok(bytes + kPageBytes < kMostPageBytes);
});

/** Moves the view in `frames` frames; sorted milliseconds of painting and between frames. */
const framesOf = (page, frames, deltaX, deltaY) => canvasOf(page).evaluate((canvas, [count, x, y]) => new Promise((done) => {
  const [paints, gaps] = [[], []];
  let before = performance.now();
  const frame = (now) => {
    gaps.push(now - before);
    before = now;
    paints.push(Number(canvas.dataset.ms));
    const sign = paints.length % 20 < 10 ? 1 : -1;
    canvas.dispatchEvent(new WheelEvent('wheel', { deltaX: sign * x, deltaY: sign * y, ctrlKey: y !== 0, clientX: canvas.getBoundingClientRect().left + 500, bubbles: true, cancelable: true }));
    if (paints.length < count) requestAnimationFrame(frame);
    else done([paints, gaps].map((list) => list.slice(5).sort((a, b) => a - b)));
  };
  requestAnimationFrame(frame);
}), [frames, deltaX, deltaY]);

test('200 000 events: drawn, moved, zoomed, searched', async () => {
  const whole = sampleDocument('--runs', '1', '--events', '200000');
  const { timeline } = whole.runs[0];
  assert.ok(timeline.events.count >= 200_000);
  const { page, close } = await opened(whole);
  await page.locator('#timeline').getByLabel('Step', { exact: true }).selectOption('-1');
  await settle(page);
  const view = await viewOf(page);
  assert.ok(view.from <= timeline.steps[0].start_ns && view.to >= timeline.steps.at(-1).end_ns, 'everything is in view');
  const say = ([paints, gaps], what) => console.log(`# ${timeline.events.count} events, ${what}: painting ${paints[paints.length >> 1].toFixed(1)} ms in the median `
    + `(longest ${paints.at(-1).toFixed(1)}), frames ${gaps[gaps.length >> 1].toFixed(1)} ms apart (longest ${gaps.at(-1).toFixed(1)})`);
  await page.getByRole('button', { name: 'Zoom in' }).click();
  await settle(page);
  say(await framesOf(page, 60, 40, 0), 'half of them in view, moved');
  say(await framesOf(page, 60, 0, 8), 'zoomed in and out');
  const start = Date.now();
  await page.getByLabel('Search the timeline').fill('gelu');
  await page.waitForFunction(() => document.querySelector('#timeline .controls .status').textContent !== '');
  console.log(`# search: ${Date.now() - start} ms`);
  say(await framesOf(page, 60, 40, 0), 'moved with a search');
  await close();
});
