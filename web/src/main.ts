// The page: reads the document, lays out its sections, and draws them one after another so that the first is there at once.
import './style.css';
import { onPlace, place, setPlace } from './address';
import { disposeCharts, fitCharts } from './chart';
import { closeDetails } from './details';
import type { Columnar, ReportDocument, Run } from './document';
import { append, choice, h, picker } from './dom';
import { DataError, readDocument, readFigures } from './read';
import { breakdown } from './sections/breakdown';
import { compare } from './sections/compare';
import { charts, tables } from './sections/generic';
import { icicle } from './sections/icicle';
import { memory } from './sections/memory';
import { environment, method } from './sections/method';
import { blockTable, ceilingTable, kernelTable, opTable } from './sections/op_tables';
import { model } from './sections/model';
import { overview } from './sections/overview';
import { roofline } from './sections/roofline';
import type { Context, Section } from './sections/section';
import { timeline } from './sections/timeline';
import { Selection } from './selection';
import { disposeTables, printTables } from './table';
import { chooseTheme, setPrinting, themeChoice } from './theme';

const kSections: readonly Section[] = [overview, timeline, breakdown, model, roofline, opTable, blockTable, kernelTable, icicle, memory, compare, charts, tables,
  ceilingTable, method, environment];

/** Sections that are not about one run. */
const kWithoutRun: readonly Section[] = [charts, tables, ceilingTable, method, environment];

/** A study of single ops has charts and tables and no run, peaks has ceilings alone: sections about runs would only say that. */
function sectionsOf(document: ReportDocument): readonly Section[] {
  const { charts: ofCharts, tables: ofTables } = document;
  if (document.runs.length > 0 || ofCharts.length + ofTables.length + document.ceilings.length === 0) return kSections;
  return kWithoutRun.filter((section) => (section !== charts || ofCharts.length > 0) && (section !== tables || ofTables.length > 0));
}

const kNoRows: Columnar = { length: 0, names: [], columns: {} };

/** What the page shows when a run is missing: every section then says what it lacks. */
const kNoRun: Run = {
  id: -1, label: 'no run', file: 0, kind: '', status: 'missing', config: {}, settings: [], figures: readFigures({}),
  headline: '', method: [], glance: { time: { of: '', parts: [] }, bound: { of: '', parts: [] }, idle: { of: '', parts: [] } }, kernels: [], facts: {}, step: null, phases: [],
  blocks: [],
  samples: kNoRows, roofs: { rates: [], bandwidths: [] }, ops: kNoRows, scopes: { layers: kNoRows, merged: kNoRows }, memory: null, timeline: null, counted: kNoRows, why: [],
  model: { nodes: [], edges: [], lanes: 0, back_lanes: 0, lacks: [] },
};

class Page {
  private readonly main = h('main', { id: 'main' });
  private pending: (() => void)[] = [];
  private readonly sections: readonly Section[];

  constructor(private readonly root: Element, private readonly document: ReportDocument) {
    this.sections = sectionsOf(document);
  }

  show(): void {
    window.document.title = this.document.title;
    this.root.replaceChildren(h('a', { class: 'skip', href: '#main' }, 'Skip to the report'), this.header(), this.navigation(), this.main);
    this.showRun(this.wanted);
    this.scrollTo(place().section);
    this.listen();
  }

  /** The run that is shown where none is asked for. */
  private get first(): number { return Math.max(0, this.document.runs.findIndex((run) => run.status === 'success')); }

  /** The run that the address names, where there is one. */
  private get wanted(): number {
    const { run } = place();
    return run !== null && run < this.document.runs.length ? run : this.first;
  }

  /** Chosen by the reader; what was looked at in another run's timeline is not in this one. */
  private choose(run: number): void {
    setPlace({ run: run === this.first ? null : run, span: null });
    this.showRun(run);
  }

  private scrollTo(id: string): void {
    if (!this.sections.some((section) => section.id === id)) return;
    this.finish();
    document.getElementById(id)!.scrollIntoView();
  }

  private header(): HTMLElement {
    const { document } = this;
    const facts = [document.rooflm && `rooflm ${document.rooflm}`, document.started_utc, document.files.join(', ')].filter((part) => part !== '');
    const command = document.files.length > 1 ? '' : document.command; // of one record among several it would say too much
    return h('header', { class: 'top' },
             h('div', { class: 'title' }, h('h1', {}, document.title), document.question !== '' && h('p', { class: 'question' }, document.question), document.answer !== '' && h('p', { class: 'answer' }, document.answer), h('p', {}, facts.join(' · ')), command !== '' && h('p', {}, h('code', {}, command))),
             h('div', { class: 'settings' },
               document.runs.length > 1 && picker('Run', document.runs.map((run, index) => [String(index), `${run.label}${run.status === 'success' ? '' : ` (${run.status || 'status unknown'})`}`] as const),
                                                  String(this.wanted), (value) => this.choose(Number(value))),
               choice('Theme', [['system', 'Auto'], ['light', 'Light'], ['dark', 'Dark']] as const, themeChoice(), chooseTheme)));
  }

  private navigation(): HTMLElement {
    const links = this.sections.map((section) => h('a', { href: `#${section.id}`, onclick: () => this.finish() }, section.title));
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) {
        setPlace({ section: entry.target.id });
        links.forEach((link) => (link.hash === `#${entry.target.id}` ? link.setAttribute('aria-current', 'true') : link.removeAttribute('aria-current')));
      }
    }, { rootMargin: '-15% 0px -75% 0px' });
    this.watch = (element) => seen.observe(element);
    return h('nav', { class: 'contents', 'aria-label': 'Contents' }, ...links);
  }
  private watch: (element: Element) => void = () => undefined;

  private problems(): HTMLElement | null {
    const { document } = this;
    const said = [...document.problems];
    if (!document.complete) said.unshift('This record is partial: the run that wrote it did not finish.');
    if (document.runs.length === 0 && this.sections === kSections) said.unshift('This report holds no run.');
    return said.length > 0 ? h('div', { class: 'problems', role: 'status' }, ...said.map((text) => h('p', {}, text))) : null;
  }

  private showRun(index: number): void {
    closeDetails();
    const picked = this.root.querySelector<HTMLSelectElement>('.settings select');
    if (picked) picked.value = String(index);
    disposeCharts(this.main);
    disposeTables(this.main);
    const run = this.document.runs[index] ?? kNoRun;
    const context: Context = { document: this.document, run, runIndex: index, selection: new Selection(run) };
    const sections = this.sections.map((section) => h('section', { id: section.id, 'aria-labelledby': `${section.id}-title`, 'aria-busy': 'true' },
      h('h2', { id: `${section.id}-title` }, section.title), section.lead !== '' && h('p', { class: 'lead' }, section.lead)));
    this.main.replaceChildren();
    append(this.main, [this.problems(), ...sections]);
    sections.forEach((element) => this.watch(element));
    const jobs = this.sections.map((section, i) => () => fill(sections[i]!, section, context));
    this.pending = jobs;
    this.next(jobs);
  }

  /** Builds one section, then lets the browser draw and the reader act before the next. */
  private next(jobs: (() => void)[]): void {
    if (jobs !== this.pending || jobs.length === 0) return; // another run was chosen, or the rest was built at once
    jobs.shift()!();
    if (jobs.length === this.sections.length - 1) performance.mark('overview');
    if (jobs.length > 0) setTimeout(() => this.next(jobs));
    else this.complete();
  }

  private complete(): void {
    performance.mark('all');
    window.document.documentElement.dataset.ready = 'true';
  }

  /** Builds what is left, at once. */
  private finish(): void {
    if (this.pending.length === 0) return;
    while (this.pending.length > 0) this.pending.shift()!();
    this.complete();
  }

  private listen(): void {
    onPlace((isElsewhere) => {
      if (isElsewhere) this.showRun(this.wanted);
      this.scrollTo(place().section);
    });
    window.addEventListener('keydown', (event) => {
      const inField = event.target instanceof HTMLElement && /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
      if (event.key === 'Escape' && closeDetails()) event.preventDefault();
      if (event.key === '/' && !inField && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        this.finish();
        searchBoxInView()?.focus();
      }
    });
    window.addEventListener('beforeprint', () => { this.finish(); setPrinting(true); printTables(true); fitCharts(); });
    window.addEventListener('afterprint', () => { setPrinting(false); printTables(false); fitCharts(); });
  }
}

function fill(element: HTMLElement, section: Section, context: Context): void {
  try {
    append(element, section.build(context));
  } catch (error) {
    // One broken part must not take the others along; it says so in its place.
    append(element, [h('p', { class: 'absent', role: 'alert' }, `This part could not be drawn: ${error instanceof Error ? error.message : String(error)}`)]);
    console.error(section.id, error);
  }
  element.removeAttribute('aria-busy');
}

/** The search box nearest to what is looked at; the table of ops when none is in view. */
function searchBoxInView(): HTMLInputElement | null {
  const boxes = [...document.querySelectorAll<HTMLInputElement>('.table input[type=search], #timeline .controls input[type=search]')];
  const inView = boxes.find((box) => {
    const { top, bottom } = box.closest('.table, #timeline')!.getBoundingClientRect();
    return bottom > 0 && top < window.innerHeight;
  });
  return inView ?? document.querySelector<HTMLInputElement>('#ops input[type=search]') ?? boxes[0] ?? null;
}

function start(): void {
  const root = document.getElementById('page')!;
  const data = document.getElementById('rooflm-data');
  try {
    const report = readDocument(data?.textContent ?? '');
    data?.remove(); // the text is read; a large one need not be kept
    new Page(root, report).show();
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    root.replaceChildren(h('main', { class: 'failure', role: 'alert' }, h('h1', {}, 'This report cannot be shown'), h('p', {}, error.message)));
    document.documentElement.dataset.ready = 'true';
  }
}

start();
