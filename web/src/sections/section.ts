// What a part of the page is: a title, and how it is built from the document and the run that is looked at.
import type { ReportDocument, Run } from '../document';
import type { Child } from '../dom';
import type { Selection } from '../selection';

export interface Context {
  document: ReportDocument;
  run: Run;
  /** Of `run` in the document. */
  runIndex: number;
  /** The ops of `run` that the reader chose, in whichever part. */
  selection: Selection;
  /** Takes another run, by its place in the document. */
  choose: (run: number) => void;
}

export interface Section {
  id: string;
  title: string;
  /** One line under the title: what is seen here and how to read it. */
  lead: string;
  build: (context: Context) => Child[];
}
