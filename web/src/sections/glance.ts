// One look: where the time goes, what it is bound by, what is idle and why, what would help most.
import { colourVariable } from '../colours';
import type { Advice, GlanceList } from '../document';
import { h } from '../dom';
import { percent, seconds } from '../format';
import type { Context } from './section';

const colourOfPart = (part: GlanceList['parts'][number]): string => colourVariable(part.phase || (part.name.endsWith(' others') ? 'unknown' : part.name));

function bar({ parts }: GlanceList): HTMLElement {
  return h('div', { class: 'shares', 'aria-hidden': true }, ...parts.map((part) =>
    h('i', { style: `flex-grow:${part.share ?? 0};background:${colourOfPart(part)}`, title: `${part.name} ${percent(part.share)}` })));
}

function shares(title: string, list: GlanceList): HTMLElement {
  const head = h('h3', {}, title);
  const of = h('p', { class: 'note' }, list.of);
  if (list.parts.length === 0) return h('div', { class: 'look' }, head, of);
  const rows = list.parts.map((part) => h('li', { title: part.note || undefined }, h('i', { class: 'swatch', style: `background:${colourOfPart(part)}` }),
                                         h('span', { class: 'what' }, part.name), h('span', {}, seconds(part.seconds)), h('strong', {}, percent(part.share))));
  return h('div', { class: 'look' }, head, bar(list), h('ul', {}, ...rows), of);
}

/** The largest possible gains, and what would mend the cause that costs most. */
function help(advice: readonly Advice[], bound: GlanceList, isAlone: boolean): HTMLElement {
  const rows = advice.slice(0, 4).map((item) => h('li', {}, h('span', { class: 'what' }, item.subject), h('span', {}, seconds(item.gain_s)), h('strong', {}, percent(item.step_share))));
  const [most] = bound.parts;
  return h('div', { class: 'look' }, h('h3', {}, 'What would help most'),
           rows.length > 0 ? h('ul', {}, ...rows) : null,
           h('p', { class: 'note' }, rows.length > 0 ? `at most, and as a share of the step${isAlone ? '' : '; what another run here already does is left out'}` : 'This report gives no advice for this run.'),
           most && most.note !== '' ? h('p', {}, h('strong', {}, `${most.name}: `), most.note) : null);
}

export function glance({ run, document }: Context): HTMLElement {
  const advice = document.advice.filter((item) => item.run === null || item.run === run.id);
  return h('div', { class: 'glance' }, shares('Where the time goes', run.glance.time), shares('What it is bound by', run.glance.bound),
           shares('What is idle, and why', run.glance.idle), help(advice, run.glance.bound, document.runs.length < 2));
}
