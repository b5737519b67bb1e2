// Pointer, wheel and touch on a timeline. One finger or button moves time or spans it, two fingers zoom; the wheel zooms once
// the timeline has the focus, and always with Ctrl (which is also what a pinch on a touchpad sends): a page that scrolls past must not stop.
import type { TimelineView } from './view';

const kClick = 4; // pixels; what moves less is a click
const kWheel = 0.0016;
const kPinchWheel = 0.01;
const kLinePixels = 16;

interface Drag {
  x: number;
  time: number;
  window: [number, number];
  spans: boolean;
  moved: boolean;
}

export class Gestures {
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private drag: Drag | null = null;
  private pinch: { apart: number; time: number; window: [number, number] } | null = null;

  constructor(private readonly view: TimelineView) {}

  /** On the ruler every drag spans time. */
  listen(element: HTMLElement, isRuler: boolean): void {
    element.addEventListener('pointerdown', (event) => this.down(element, event, isRuler));
    element.addEventListener('pointermove', (event) => this.move(event, isRuler));
    element.addEventListener('pointerup', (event) => this.up(event, isRuler));
    element.addEventListener('pointercancel', (event) => this.cancel(event));
    element.addEventListener('pointerleave', () => this.view.leave());
    element.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
  }

  private down(element: HTMLElement, event: PointerEvent, isRuler: boolean): void {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    if (this.pointers.size === 2) {
      const [a, b] = [...this.pointers.values()];
      this.drag = null;
      this.pinch = { apart: Math.max(10, Math.abs(a!.x - b!.x)), time: this.view.timeAt((a!.x + b!.x) / 2), window: this.view.window };
    } else {
      this.drag = { x: event.offsetX, time: this.view.timeAt(event.offsetX), window: this.view.window, moved: false,
                    spans: isRuler || this.view.spanning !== event.shiftKey };
    }
  }

  private move(event: PointerEvent, isRuler: boolean): void {
    const pointer = this.pointers.get(event.pointerId);
    if (!pointer) {
      if (!isRuler && event.pointerType !== 'touch') this.view.hover(event.offsetX, event.offsetY);
      return;
    }
    pointer.x = event.offsetX;
    pointer.y = event.offsetY;
    if (this.pinch) this.pinchTo();
    else if (this.drag) this.dragTo(event.offsetX);
  }

  private pinchTo(): void {
    const [a, b] = [...this.pointers.values()];
    if (!a || !b || !this.pinch) return;
    const { window: [from, to], time, apart } = this.pinch;
    const span = ((to - from) * apart) / Math.max(10, Math.abs(a.x - b.x));
    // The time that was between the fingers stays between them.
    const share = (this.view.timeAt((a.x + b.x) / 2) - this.view.scene.from) / (this.view.scene.to - this.view.scene.from);
    this.view.show(time - share * span, time - share * span + span);
  }

  private dragTo(x: number): void {
    const { drag } = this;
    if (!drag || (!drag.moved && Math.abs(x - drag.x) < kClick)) return;
    drag.moved = true;
    this.view.leave();
    if (drag.spans) {
      const time = this.view.timeAt(x);
      this.view.span([Math.min(drag.time, time), Math.max(drag.time, time)], false);
    } else {
      const by = (drag.x - x) / this.view.scale;
      this.view.show(drag.window[0] + by, drag.window[1] + by);
    }
  }

  private up(event: PointerEvent, isRuler: boolean): void {
    if (!this.pointers.delete(event.pointerId)) return;
    const { drag } = this;
    this.drag = null;
    this.pinch = null;
    if (drag?.moved && drag.spans) this.view.span(this.view.scene.span);
    else if (drag && !drag.moved && isRuler) this.view.span(null);
    else if (drag && !drag.moved) this.view.click(event.offsetX, event.offsetY);
  }

  /** The browser took the gesture: it scrolls the page. */
  private cancel(event: PointerEvent): void {
    this.pointers.delete(event.pointerId);
    this.drag = null;
    this.pinch = null;
  }

  private wheel(event: WheelEvent): void {
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? kLinePixels : 1;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    if (sideways !== 0) {
      event.preventDefault();
      const by = (sideways * unit) / this.view.scale;
      const [from, to] = this.view.window;
      this.view.show(from + by, to + by);
    } else if (event.ctrlKey || event.metaKey || document.activeElement === this.view.canvas) {
      event.preventDefault();
      this.view.zoom(Math.exp(event.deltaY * unit * (event.ctrlKey ? kPinchWheel : kWheel)), this.view.timeAt(event.offsetX));
    } else {
      this.view.hint('Click the timeline, or hold Ctrl, to zoom with the wheel.');
    }
  }
}
