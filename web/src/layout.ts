// Which sections a page has, in which order, and which of them wait behind a click.
import type { ReportDocument } from './document';
import { blockTable, ceilingTable, kernelTable, opTable } from './sections/op_tables';
import { breakdown } from './sections/breakdown';
import { compare } from './sections/compare';
import { charts, tables } from './sections/generic';
import { gaps } from './sections/gaps';
import { icicle } from './sections/icicle';
import { memory } from './sections/memory';
import { environment, method } from './sections/method';
import { model } from './sections/model';
import { overview } from './sections/overview';
import { isPlan, kNumbers, plan } from './sections/plan';
import { roofline } from './sections/roofline';
import { runs } from './sections/runs';
import type { Section } from './sections/section';
import { timeline } from './sections/timeline';

/** A section, and the part of the document that it shows. */
export interface Part {
  section: Section;
  document: ReportDocument;
}

/** Sections that stand together; with a title they are made when it is clicked. */
export interface Group {
  id: string;
  title: string;
  lead: string;
  parts: Part[];
}

const kOneRun: readonly Section[] = [overview, timeline, gaps, breakdown, model, roofline, opTable, blockTable, kernelTable, icicle, memory];
const kMeasured: readonly Section[] = [ceilingTable, method, environment];
const kMostAtOnce = 4; // with more runs the page begins with all of them, and one is taken apart on request
/** What is asked of many runs that no study made: the views that go over steps or values. */
const kOverValues = ['training', 'sweep', 'scaling', 'growth', 'precision'];
/** What a run was made for, if not to be measured: that comes first. */
const kOutcome = ['training', 'generation'];
/** Views that the page draws itself and that show all runs. */
const kOfAllRuns = new Set(['bench', 'phases', 'blocks']);

const partsOf = (sections: readonly Section[], document: ReportDocument): Part[] => sections.map((section) => ({ section, document }));

/** The charts and tables of the views that answer the question, or all others. */
function viewsOf(document: ReportDocument, answers: readonly string[], isAnswer: boolean): ReportDocument {
  const wanted = ({ view }: { view: string }): boolean => answers.includes(view) === isAnswer;
  const inOrder = <T extends { view: string }>(all: readonly T[]): T[] => {
    const chosen = all.filter(wanted);
    return isAnswer ? answers.flatMap((view) => chosen.filter((one) => one.view === view)) : chosen;
  };
  return { ...document, charts: inOrder(document.charts), tables: inOrder(document.tables) };
}

const answer: Section = {
  id: 'answer',
  title: 'Answer',
  lead: 'The charts and tables that answer the question.',
  build: (context) => [...(context.document.charts.length > 0 ? charts.build(context) : []), ...(context.document.tables.length > 0 ? tables.build(context) : [])],
};

/** Where nobody asked anything. */
const overRuns: Section = { ...answer, title: 'From run to run', lead: 'What changes with the settings in which the runs differ.' };

const outcome: Section = { ...answer, title: 'Outcome', lead: 'What came of the run: its losses, or what it generated.' };

/** Of several runs the question comes first: what is of one of them, and what the study does not ask for, waits. */
function folded(document: ReportDocument): Group[] {
  const answers = document.answers.length > 0 ? document.answers : kOverValues;
  const [asked, rest] = [viewsOf(document, answers, true), viewsOf(document, answers, false)];
  const hasAnswer = asked.charts.length + asked.tables.length > 0;
  const showsAll = document.answers.length === 0 || document.answers.some((view) => kOfAllRuns.has(view));
  const further = [...(rest.charts.length > 0 ? [charts] : []), ...(rest.tables.length > 0 ? [tables] : []), ...(document.comparison ? [] : [compare])];
  return [
    { id: 'asked', title: '', lead: '', parts: [...partsOf(document.comparison ? [compare] : [], document), ...partsOf(hasAnswer ? [document.answers.length > 0 ? answer : overRuns] : [], asked), ...partsOf([runs, ...(showsAll ? [breakdown] : [])], document)] },
    { id: 'one-run', title: 'One run, taken apart', lead: 'Timeline, roofline, ops, memory.', parts: partsOf(kOneRun.filter((section) => !showsAll || section !== breakdown), document) },
    { id: 'further', title: 'Further views', lead: 'Other charts and tables, two runs side by side.', parts: partsOf(further, rest) },
    { id: 'measured', title: 'How it was measured', lead: 'Ceilings, method and certainty, environment.', parts: partsOf(kMeasured, document) },
  ];
}

const simulated: Section = {
  ...timeline, lead: 'What would run when, simulated. Drag to move; after a click, the wheel zooms (with Ctrl always), arrow keys move from event to event. Drag on the ruler to sum up a time span.',
};

/** A plan: its numbers, what they are made of, a step in time. Nothing was measured. */
function planned(document: ReportDocument): Group[] {
  const hasRuns = document.runs.length > 0;
  const views = viewsOf(document, document.answers, true);
  const asked = { ...views, tables: views.tables.filter(({ id }) => id !== kNumbers) };
  const hasNumbers = document.tables.some(({ id }) => id === kNumbers); // beside a measurement there are none
  return [{ id: 'all', title: '', lead: '', parts: [...partsOf(hasNumbers ? [plan] : [], document), ...partsOf([answer], asked), ...partsOf([...(hasRuns ? [simulated] : []), environment], document)] }];
}

/** A study of single ops has charts and tables and no run, peaks has ceilings alone: sections about runs would only say that. */
export function layoutOf(document: ReportDocument): Group[] {
  if (isPlan(document)) return planned(document);
  const { charts: ofCharts, tables: ofTables, runs: ofRuns } = document;
  if (ofRuns.length > kMostAtOnce || (ofRuns.length > 1 && document.answers.length > 0)) return folded(document);
  const isOfRuns = ofRuns.length > 0 || ofCharts.length + ofTables.length + document.ceilings.length === 0;
  const answers = document.answers.length > 0 ? document.answers : kOutcome;
  const asked = viewsOf(document, answers, true);
  const isAsked = isOfRuns && asked.charts.length + asked.tables.length > 0;
  const rest = isAsked ? viewsOf(document, answers, false) : document;
  const views = [...(rest.charts.length > 0 ? [charts] : []), ...(rest.tables.length > 0 ? [tables] : [])];
  const ofOneRun = ofRuns.length > 1 || document.comparison ? [compare, ...kOneRun] : kOneRun; // which run is faster comes before what one of them does
  return [{ id: 'all', title: '', lead: '',
            parts: [...partsOf(!isAsked ? [] : document.answers.length > 0 ? [answer] : [outcome], asked), ...partsOf(isOfRuns ? ofOneRun : [], document), ...partsOf(views, rest), ...partsOf(kMeasured, document)] }];
}
