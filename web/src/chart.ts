// Charts: the parts of ECharts that the page uses, in the page's colours, redrawn when theme or size change.
import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import { DataZoomComponent, GridComponent, LegendPlainComponent, MarkLineComponent, MarkPointComponent, TitleComponent, TooltipComponent } from 'echarts/components';
import { type ECharts, init, use } from 'echarts/core';
import { CanvasRenderer, SVGRenderer } from 'echarts/renderers';
import { h } from './dom';
import { saveButtons, type Sheet } from './save';
import { onTheme, token } from './theme';

use([BarChart, CustomChart, LineChart, ScatterChart, DataZoomComponent, GridComponent, LegendPlainComponent, MarkLineComponent, MarkPointComponent,
  TitleComponent, TooltipComponent, CanvasRenderer, SVGRenderer]);

// ECharts' own option type costs seconds of type checking and accepts everything all the same.
export type Option = Record<string, unknown>;

const views = new Map<Element, Chart>();
const resize = new ResizeObserver((entries) => {
  for (const entry of entries) views.get(entry.target)?.resize();
});
// A chart is made when it comes near to the view: a page of many charts is there sooner.
const kNear = '700px';
const kNarrow = 560;
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) views.get(entry.target)?.fit();
}, { rootMargin: kNear });

/** The text style of axes and labels. */
const textStyle = (): Option => ({ color: token('muted'), fontSize: 11, fontFamily: token('sans') });

/** An axis in the page's style; `more` says its type, name and format. */
export function axis(more: Option): Option {
  const line = { lineStyle: { color: token('line') } };
  return {
    axisLine: { show: true, ...line }, axisTick: { show: true, ...line }, splitLine: { show: true, ...line },
    nameTextStyle: textStyle(), nameLocation: 'middle', nameGap: 28, ...more,
    // Numbers that would overlap are left out; names are not.
    axisLabel: { ...textStyle(), hideOverlap: more.type !== 'category', ...(more.axisLabel as Option | undefined) },
  };
}

export const tooltip = (more: Option): Option => ({
  confine: true, transitionDuration: 0, backgroundColor: token('raised'), borderColor: token('line-strong'), borderWidth: 1, padding: [6, 8],
  textStyle: { color: token('text'), fontSize: 12, fontFamily: token('sans') }, extraCssText: 'box-shadow:none;border-radius:4px;max-width:420px', ...more,
});

/** What a tooltip says: a heading and lines of name and value. */
export function tip(title: string, lines: readonly (readonly [string, string, string?])[]): HTMLElement {
  return h('div', { class: 'tip' }, h('strong', {}, title),
    h('table', {}, h('tbody', {}, ...lines.map(([name, value, colour]) =>
      h('tr', {}, h('th', { scope: 'row' }, colour ? h('i', { class: 'swatch', style: `background:${colour}` }) : null, name), h('td', {}, value))))));
}

/** Letters of labels of a category axis. */
export const kLabel = { fontSize: 12, lineHeight: 14 };

const ruler = document.createElement('canvas').getContext('2d')!;

/** Pixels that the longest of the labels takes. Where measuring all letters takes ECharts too long, it breaks lines as if each were an "a". */
function widest(names: readonly string[]): number {
  const kAir = 2; // ECharts breaks what fills its room to the last pixel
  ruler.font = `${kLabel.fontSize}px ${token('sans')}`;
  const letter = ruler.measureText('a').width;
  return names.reduce((most, name) => Math.max(most, ruler.measureText(name).width + kAir, name.length * letter + kAir), 0);
}

/** Room for the labels of a category axis at the side, and the lines that the longest takes: they are broken, never cut. */
export function labelRoom(names: readonly string[], width: number): { width: number; lines: number } {
  const longest = widest(names);
  const room = Math.ceil(Math.min(longest, Math.max(110, 0.3 * (width || 900))));
  const lines = longest <= room ? 1 : Math.ceil((1.25 * longest) / room); // words leave part of a line empty
  return { width: room, lines };
}

const kTitleHeight = 26;

/** Room for a key of these names above a saved picture: about as many lines as they take. */
function legendHeight(names: readonly string[], width: number): number {
  const [kLetter, kBox, kLine] = [6.2, 30, 21];
  const length = names.reduce((sum, name) => sum + name.length * kLetter + kBox, 0);
  return Math.ceil((1.15 * length) / Math.max(width, 200)) * kLine;
}

/** One chart. `option` is asked again whenever the chart has to be drawn anew, `sheet` for the numbers that it draws. */
export class Chart {
  /** The chart with the buttons that save it. */
  readonly element: HTMLElement;
  /** The chart alone. */
  readonly place: HTMLElement;
  private echarts: ECharts | null = null;
  private narrow = false;
  private readonly forget: () => void;
  private readonly handlers: ((chart: ECharts) => void)[] = [];

  constructor(private readonly label: string, height: number, private readonly option: () => Option, sheet: () => Sheet) {
    this.place = h('div', { class: 'chart', role: 'img', 'aria-label': label, style: `height:${height}px` });
    this.element = h('div', { class: 'figure' }, this.place,
                     saveButtons(label, { png: () => this.picture('canvas', (chart) => chart.getDataURL({ type: 'png', pixelRatio: 2 })),
                                           svg: () => this.picture('svg', (chart) => chart.renderToSVGString()), sheet }));
    views.set(this.place, this);
    resize.observe(this.place);
    near.observe(this.place);
    this.forget = onTheme(this.place, () => this.draw());
  }

  /** Calls `handler` once the chart exists; ECharts needs a size, so that is when the element is laid out. */
  whenReady(handler: (chart: ECharts) => void): void {
    if (this.echarts) handler(this.echarts);
    else this.handlers.push(handler);
  }

  draw(): void {
    if (!this.echarts) return;
    this.echarts.setOption({ animation: false, ...this.option() }, { notMerge: true });
  }

  setHeight(pixels: number): void { this.place.style.height = `${pixels}px`; }

  resize(): void {
    if (this.echarts) this.fit();
  }

  get width(): number { return this.place.clientWidth; }

  /** Makes the chart when there is none yet, and gives it the size of its element. */
  fit(): void {
    if (this.place.clientWidth === 0 || this.place.clientHeight === 0) return;
    const narrow = this.place.clientWidth < kNarrow;
    if (this.echarts) {
      this.echarts.resize();
      if (narrow !== this.narrow) this.draw(); // labels take another share of the width
      this.narrow = narrow;
      return;
    }
    this.narrow = narrow;
    near.unobserve(this.place);
    this.echarts = init(this.place);
    this.draw();
    for (const handler of this.handlers) handler(this.echarts);
  }

  /** A picture of it: as it stands, with its name and its key, which the page has outside of it. */
  private picture(renderer: 'canvas' | 'svg', read: (chart: ECharts) => string): string {
    this.fit();
    const { width, place } = this;
    const option = this.option() as { grid: { top: number }; series: { name?: string; data: unknown[] }[] };
    const names = [...new Set(option.series.filter(({ data }) => data.length > 0).map(({ name }) => name ?? ''))].filter((name) => name !== '');
    const head = kTitleHeight + legendHeight(names, width);
    const zoomed = (this.echarts?.getOption() as { dataZoom?: Option[] } | undefined)?.dataZoom ?? [];
    const chart = init(document.createElement('div'), null, { renderer, width, height: place.clientHeight + head });
    chart.setOption({ animation: false, backgroundColor: token('panel'), ...option, grid: { ...option.grid, top: option.grid.top + head }, dataZoom: zoomed.map((zoom) => ({ ...zoom, show: false })),
                      title: { text: this.label, left: 4, top: 2, textStyle: { color: token('text'), fontSize: 13, fontFamily: token('sans') } },
                      legend: { data: names, left: 4, top: kTitleHeight, itemWidth: 12, itemHeight: 10, icon: 'rect', textStyle: textStyle() } });
    const picture = read(chart);
    chart.dispose();
    return picture;
  }

  dispose(): void {
    this.forget();
    resize.unobserve(this.place);
    near.unobserve(this.place);
    views.delete(this.place);
    this.echarts?.dispose();
  }
}

/** Ends every chart below `root`, which is about to be replaced. */
export function disposeCharts(root: Element): void {
  for (const [element, view] of [...views]) if (root.contains(element)) view.dispose();
}

/** Fits every chart to its element now: before printing no observer gets its turn. */
export function fitCharts(): void {
  for (const view of views.values()) view.fit();
}

/** Intervals as bars from low to high: rows of [x, low, high]; beside the series of the same name. `sideways`: along the x axis. */
export function errorBars(name: string, rows: readonly unknown[], colour: string, sideways = false): Option {
  const kCap = 4;
  return {
    type: 'custom', name, data: rows, silent: true, z: 5, itemStyle: { color: colour }, encode: sideways ? { x: [1, 2], y: 0 } : { x: 0, y: [1, 2] },
    renderItem: (_: unknown, api: { value: (i: number) => number; coord: (at: number[]) => [number, number] }) => {
      const at = (i: number): [number, number] => api.coord(sideways ? [api.value(i), api.value(0)] : [api.value(0), api.value(i)]);
      const [low, high] = [at(1), at(2)];
      const [dx, dy] = sideways ? [0, kCap] : [kCap, 0];
      const line = (x1: number, y1: number, x2: number, y2: number): Option => ({ type: 'line', shape: { x1, y1, x2, y2 }, style: { stroke: colour, lineWidth: 1.2 } });
      const cap = ([x, y]: [number, number]): Option => line(x - dx, y - dy, x + dx, y + dy);
      return { type: 'group', children: [line(...low, ...high), cap(low), cap(high)] };
    },
  };
}
