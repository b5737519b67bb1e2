// What keys do on a timeline.
import type { TimelineView, Watcher } from './view';

const kZoom = 0.6;
const kPan = 0.25;

/** Actions by key; one that answers false leaves the key to the page. */
export function keyActions(view: TimelineView, watcher: Watcher): Record<string, (() => void | boolean) | undefined> {
  const { scene, model } = view;
  const closer = (): void => view.zoom(kZoom, undefined, true);
  const further = (): void => view.zoom(1 / kZoom, undefined, true);
  const left = (): void => view.pan(-kPan, true);
  const right = (): void => view.pan(kPan, true);
  const clear = (): boolean => {
    if (scene.span) view.span(null);
    else if (watcher.onEscape()) return true;
    else if (scene.current >= 0) view.pick(-1);
    else return false;
    return true;
  };
  const toStep = (by: number): void => {
    const { length } = model.data.steps;
    watcher.onStep(Math.min(Math.max(view.currentStep + by, 0), length - 1)); // -1 without steps: all of it
  };
  const onCurrent = (action: (event: number) => void) => (): boolean => {
    if (scene.current < 0) return false;
    action(scene.current);
    return true;
  };
  return {
    ArrowLeft: () => view.step(-1), ArrowRight: () => view.step(1), ArrowUp: () => view.cross(-1), ArrowDown: () => view.cross(1),
    'Shift+ArrowLeft': left, 'Shift+ArrowRight': right, a: left, d: right, A: left, D: right,
    '+': closer, '=': closer, w: closer, W: closer, '-': further, _: further, s: further, S: further,
    Home: () => view.toEnd(false), End: () => view.toEnd(true),
    0: () => toStep(0), '[': () => toStep(-1), ']': () => toStep(1),
    n: () => watcher.onMatch(1), N: () => watcher.onMatch(-1), Escape: clear, Enter: onCurrent((event) => watcher.onOpen(event)),
    f: onCurrent((event) => {
      const length = Math.max(model.end[event]! - model.start[event]!, 1);
      view.show(model.start[event]! - 2 * length, model.end[event]! + 2 * length, true);
    }),
    m: onCurrent((event) => view.span([model.start[event]!, model.end[event]!])),
  };
}
