// The page: reads the document, lays out its sections, and draws them one after another so that the first is there at once.
import './style.css';
import { nameRuns, onPlace, place, setPlace } from './address';
import { disposeCharts, fitCharts } from './chart';
import { closeDetails } from './details';
import { DataError, kNoRun, readDocument } from './document';
import type { ReportDocument } from './document';
import { append, choice, h, picker } from './dom';
import { type Group, layoutOf, type Part } from './layout';
import { Missing, reasonOf } from './missing';
import type { Context, Section } from './sections/section';
import { Selection } from './selection';
import { disposeTables, printTables } from './table';
import { chooseTheme, disposeListeners, setPrinting, themeChoice } from './theme';

class Page {
  private readonly main = h('main', { id: 'main' });
  private pending: (() => void)[] = [];
  private readonly groups: readonly Group[];
  /** Groups that the reader has opened: they stay open for the next run. */
  private readonly opened = new Set<string>();

  constructor(private readonly root: Element, private readonly document: ReportDocument) {
    this.groups = layoutOf(document);
  }

  /** The group that holds the section. */
  private groupOf(id: string): Group | undefined { return this.groups.find((group) => group.parts.some(({ section }) => section.id === id)); }

  show(): void {
    nameRuns(this.document.runs.map(({ label }) => label));
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
    setPlace({ run, span: null });
    const group = this.groupOf('overview');
    if (group && group.title !== '') this.opened.add(group.id);
    this.showRun(run);
    if (group && group.title !== '') this.scrollTo('overview');
  }

  private scrollTo(id: string): void {
    const group = this.groupOf(id);
    if (!group) return;
    this.finish();
    this.unfold.get(group.id)?.();
    document.getElementById(id)?.scrollIntoView();
  }

  private header(): HTMLElement {
    const { document } = this;
    const facts = [document.rooflm && `rooflm ${document.rooflm}`, document.started_utc, document.files.join(', ')].filter((part) => part !== '');
    const command = document.files.length > 1 ? '' : document.command; // of one record among several it would say too much
    return h('header', { class: 'top' },
             h('h1', {}, document.title),
             h('div', { class: 'settings' },
               document.runs.length > 1 && picker('Run', document.runs.map((run, index) => [String(index), `${run.label}${run.status === 'success' ? '' : ` (${run.status || 'status unknown'})`}`] as const),
                                                  String(this.wanted), (value) => this.choose(Number(value))),
               choice('Theme', [['system', 'Auto'], ['light', 'Light'], ['dark', 'Dark']] as const, themeChoice(), chooseTheme)),
             h('div', { class: 'about' }, document.question !== '' && h('p', { class: 'question' }, document.question), document.answer !== '' && h('p', { class: 'answer' }, document.answer), h('p', {}, facts.join(' · ')), command !== '' && h('p', {}, h('code', {}, command))));
  }

  private navigation(): HTMLElement {
    const link = ({ id, title }: Section): HTMLAnchorElement => h('a', { href: `#${id}`, onclick: (event) => this.follow(event, id) }, title);
    const links = this.groups.flatMap((group) => group.parts.map(({ section }) => link(section)));
    links.forEach((a) => this.links.set(a.hash.slice(1), a));
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) {
        setPlace({ section: entry.target.id });
        links.forEach((a) => a.removeAttribute('aria-current'));
        this.links.get(entry.target.id)?.setAttribute('aria-current', 'true');
        this.showLink(entry.target.id);
      }
    }, { rootMargin: '-15% 0px -75% 0px' });
    this.watch = (element) => seen.observe(element);
    return h('nav', { class: 'contents', 'aria-label': 'Contents' }, ...this.groups.flatMap((group) =>
      [group.title !== '' && h('strong', {}, group.title), ...group.parts.map(({ section }) => this.links.get(section.id)!)].filter((child) => child !== false)));
  }
  private watch: (element: Element) => void = () => undefined;
  /** Links of the contents, by the id of their section. */
  private readonly links = new Map<string, HTMLAnchorElement>();

  /** On a phone the contents are a bar: its link comes into view. The page itself must not be scrolled. */
  private showLink(id: string): void {
    const link = this.links.get(id);
    const bar = link?.parentElement;
    if (link && bar && bar.scrollWidth > bar.clientWidth) bar.scrollLeft = link.offsetLeft - (bar.clientWidth - link.offsetWidth) / 2;
  }

  /** A link of the page to one of its sections: what it leads to may have to be opened first. */
  private follow(event: Event, id: string): void {
    this.finish();
    if (this.groupOf(id)?.title === '') return;
    event.preventDefault();
    this.scrollTo(id);
  }

  private problems(): HTMLElement | null {
    const { document } = this;
    const said = [...document.problems];
    if (!document.complete) said.unshift('This record is partial: the run that wrote it did not finish.');
    if (document.runs.length === 0 && this.groupOf('overview')) said.unshift('This report has no runs.');
    return said.length > 0 ? h('div', { class: 'problems', role: 'status' }, ...said.map((text) => h('p', {}, text))) : null;
  }

  private showRun(index: number): void {
    closeDetails();
    const picked = this.root.querySelector<HTMLSelectElement>('.settings select');
    if (picked) picked.value = String(index);
    disposeCharts(this.main);
    disposeTables(this.main);
    disposeListeners(this.main);
    const run = this.document.runs[index] ?? kNoRun;
    // Among several runs the window says which one is taken apart, and so does the address.
    const isOne = this.document.runs.length < 2;
    window.document.title = isOne ? this.document.title : `${run.label} · ${this.document.title}`;
    if (!isOne) setPlace({ run: index });
    const context: Context = { document: this.document, run, runIndex: index, selection: new Selection(run), choose: (other) => this.choose(other) };
    const jobs: (() => void)[] = [];
    const groups = this.groups.map((group) => this.group(group, context, jobs));
    this.main.replaceChildren();
    append(this.main, [this.problems(), ...groups.flat()]);
    this.main.querySelectorAll('section').forEach((element) => this.watch(element));
    this.pending = jobs;
    this.parts = jobs.length;
    this.next(jobs);
  }
  private parts = 0;
  /** Opens a group of sections, by its id. */
  private readonly unfold = new Map<string, () => void>();

  /** The elements of a group; `jobs` get what builds its sections, unless they wait until it is opened. */
  private group({ id, title, lead, parts }: Group, context: Context, jobs: (() => void)[]): HTMLElement[] {
    const sections = parts.map((part) => sectionElement(part));
    const missing = new Missing();
    const build = parts.map((part, i) => () => this.fill(sections[i]!, part, context, missing));
    const isOpen = title === '' || this.opened.has(id);
    if (isOpen) jobs.push(...build);
    if (title === '') return [...sections, missing.element];
    const folded = h('details', { class: 'group', id, open: isOpen }, h('summary', {}, h('h2', {}, title), h('span', { class: 'lead' }, lead)), ...sections, missing.element);
    let isBuilt = isOpen;
    this.unfold.set(id, () => {
      folded.open = true;
      this.opened.add(id);
      if (!isBuilt) build.forEach((job) => job());
      isBuilt = true;
    });
    folded.addEventListener('toggle', () => (folded.open ? this.unfold.get(id)!() : this.opened.delete(id)));
    return [folded];
  }

  /** Builds a section; one that has nothing to show is named in the list of those. */
  private fill(element: HTMLElement, { section, document }: Part, context: Context, missing: Missing): void {
    let reason: string | null = null;
    try {
      const children = section.build({ ...context, document });
      reason = reasonOf(children);
      append(element, children);
    } catch (error) {
      // One broken part must not take the others along; it says so in its place.
      append(element, [h('p', { class: 'absent', role: 'alert' }, `This part could not be drawn: ${error instanceof Error ? error.message : String(error)}`)]);
      console.error(section.id, error);
    }
    element.removeAttribute('aria-busy');
    this.links.get(section.id)!.hidden = reason !== null;
    if (reason === null) return;
    element.remove();
    missing.add(section, reason);
  }

  /** Builds one section, then lets the browser draw and the reader act before the next. */
  private next(jobs: (() => void)[]): void {
    if (jobs !== this.pending || jobs.length === 0) return; // another run was chosen, or the rest was built at once
    jobs.shift()!();
    if (jobs.length === this.parts - 1) performance.mark('overview');
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

function sectionElement({ section: { id, title, lead } }: Part): HTMLElement {
  return h('section', { id, 'aria-labelledby': `${id}-title`, 'aria-busy': 'true' }, h('h2', { id: `${id}-title` }, title), lead !== '' && h('p', { class: 'lead' }, lead));
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
