-- The run record: everything that one command measured or predicted. docs/record.md explains it table by table.
-- Units are seconds, bytes and FLOP. Times of events and activities are nanoseconds since meta 'epoch_utc_ns'.

-- One row per key: 'schema' (the version, as in PRAGMA user_version), 'rooflm_version', 'command' (the command line),
-- 'started_utc', 'finished_utc' (absent: the command was killed or still runs), 'revision' (git, of rooflm),
-- 'epoch_utc_ns' (zero of the record's clock, in nanoseconds since 1970; absent in records of schema 1).
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- The machine: 'cpu', 'gpu', 'cores', 'threads', 'memory', 'kernel', 'compiler', library versions, ... Studies add
-- 'study' and 'question'; a device without an instruction peak adds 'no instruction peak: DEVICE DTYPE', whose value is
-- the reason.
CREATE TABLE environment (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  unit TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- Ceilings (peak rates) of the devices, measured or from a catalog.
CREATE TABLE ceiling (
  id INTEGER PRIMARY KEY,           -- in the order in which they were written
  device TEXT NOT NULL,             -- 'cpu', 'cuda:0'
  what TEXT NOT NULL,               -- 'matmul', 'instruction', 'read', 'write', 'update', 'copy', 'triad', 'adamw'
  level TEXT NOT NULL DEFAULT '',   -- 'L1', 'L2', 'L3', 'DRAM'; '' for arithmetic
  dtype TEXT NOT NULL DEFAULT '',
  threads INTEGER NOT NULL DEFAULT 0,
  value REAL NOT NULL,              -- median rate, per second
  unit TEXT NOT NULL,               -- 'flop/s', 'byte/s'
  ci_low REAL, ci_high REAL,        -- confidence interval of the median
  samples INTEGER NOT NULL DEFAULT 0,
  problem TEXT NOT NULL DEFAULT '', -- what was run: '1024x1024x1024', '1024 MiB', 'wgmma m64n256k16'
  source TEXT NOT NULL,             -- 'measured', 'catalog', or 'measured under load: ...' (other programs used the CPU:
                                    -- a lower bound)
  measured_utc TEXT NOT NULL DEFAULT '' -- measured ceilings are cached per machine
);

-- Something that was run, planned, or did not fit in memory. A sweep has several.
CREATE TABLE run (
  id INTEGER PRIMARY KEY,
  label TEXT NOT NULL,              -- 'gpt2 B=4 T=64 fp32 fused flash'
  -- 'step' (a training step), 'train', 'generate', 'gemm', 'attention', 'foreign' (another program), 'plan' (the simulated
  -- step of a plan), 'rank' (another rank of a run: facts 'rank' and 'rank_of')
  kind TEXT NOT NULL DEFAULT 'step',
  status TEXT NOT NULL              -- 'running', 'success', 'oom', 'planned', 'failed', 'interrupted'
);

-- The configuration of a run, field by field (src/record/config.cpp lists the fields); a foreign program may have none.
CREATE TABLE config (
  run INTEGER NOT NULL REFERENCES run(id),
  key TEXT NOT NULL,                -- 'model', 'batch', 'grad_accum', 'clip', ...
  value NOT NULL,                   -- of type `type`; a flag is 0 or 1
  type TEXT NOT NULL,               -- 'text', 'integer', 'number', 'flag'
  PRIMARY KEY (run, key)
) WITHOUT ROWID;

-- Numbers and sentences about a run that have no table of their own: 'model_flop', 'matmul_flop', 'peak_flop_per_s',
-- 'needed_bytes', 'stop_reason', 'drift', 'observer_cost', ... docs/record.md lists the keys.
CREATE TABLE fact (
  run INTEGER NOT NULL REFERENCES run(id),
  key TEXT NOT NULL,
  value REAL,                       -- NULL when the fact is a sentence
  unit TEXT NOT NULL DEFAULT '',
  text TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (run, key)
) WITHOUT ROWID;

-- Wall time of one phase of one step. Phase 'step' is the whole step.
--
-- kind says how the step ran: 'warmup'; 'plain' (no observer: end-to-end numbers come from these); 'observed' (ops were
-- timed); 'traced' (by a device profiler); 'untraced' (partner of a traced step, profiler attached but off); 'in_order'
-- (traced, nothing overlapped); 'inputs' (traced from the copies of its inputs on); 'allocations' (traced with memory
-- operations); 'alone' (each op submitted and waited for alone); 'counted' (under hardware counters). 'allocations',
-- 'alone' and 'counted' enter no statistics of steps.
CREATE TABLE sample (
  run INTEGER NOT NULL REFERENCES run(id),
  step INTEGER NOT NULL,            -- counts from 0; those of warm-up count where they are kept
  phase TEXT NOT NULL,              -- 'step', 'forward', 'backward', 'optimizer', 'wait' and 'submit' (docs/record.md), of
                                    -- generation 'token', 'prefill', 'decode'
  seconds REAL NOT NULL,
  kind TEXT NOT NULL DEFAULT 'plain',
  outlier INTEGER NOT NULL DEFAULT 0, -- further than 5 normalised MAD from the median; kept in all statistics
  PRIMARY KEY (run, step, phase)
) WITHOUT ROWID;

-- The program that ran, op by op, with its cost computed from shapes.
CREATE TABLE op (
  run INTEGER NOT NULL REFERENCES run(id),
  op INTEGER NOT NULL,              -- index in the program; setup ops are omitted, so there may be gaps
  kind TEXT NOT NULL,               -- 'matmul', 'add_layernorm', ...
  class TEXT NOT NULL,              -- 'matmul', 'attention', 'elementwise', 'norm', 'softmax', 'loss', 'copy', 'optimizer'
  kernel TEXT NOT NULL,             -- name of the kernel that ran it
  library TEXT NOT NULL DEFAULT '', -- its library: 'cuBLASLt 12.8', 'oneDNN 3.1', 'rooflm'
  variant TEXT NOT NULL DEFAULT '', -- its algorithm: 'algo 66, tile 256x128, stages 4'
  workspace_bytes INTEGER NOT NULL DEFAULT 0, -- scratch memory of the kernel
  lane TEXT NOT NULL DEFAULT 'compute', -- 'background', 'copy', 'communication': it may overlap the ops after it
  name TEXT NOT NULL,               -- name of its first output
  phase TEXT NOT NULL, scope TEXT NOT NULL, -- 'h.3/attention/qk'
  dtype TEXT NOT NULL,
  shapes TEXT NOT NULL,             -- '[256,768] x [768,2304] -> [256,2304]'
  micro_batch INTEGER NOT NULL DEFAULT 0,
  recomputed INTEGER NOT NULL DEFAULT 0,
  matmul_flop INTEGER NOT NULL, elementwise_flop INTEGER NOT NULL,
  bytes_read INTEGER NOT NULL, bytes_written INTEGER NOT NULL,
  launches INTEGER NOT NULL,
  PRIMARY KEY (run, op)
) WITHOUT ROWID;

-- One execution of an op in an observed step. `device_ns` is the time of its kernels. `wall_ns` runs from the end of
-- the previous op (or the start of the step) to its own end, including dispatch, allocation and waiting; NULL where it
-- was not measured (a step that a GPU replays as a whole). No key and no index, so a million rows are cheap.
CREATE TABLE event (
  run INTEGER NOT NULL,
  step INTEGER NOT NULL,
  op INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,        -- when its kernel was entered
  device_ns INTEGER NOT NULL,
  wall_ns INTEGER
);

-- The timelines of activities: a stream of a device, a thread of the host, a link.
CREATE TABLE lane (
  run INTEGER NOT NULL REFERENCES run(id),
  lane INTEGER NOT NULL,
  kind TEXT NOT NULL,               -- 'device', 'host', 'link', in plans 'idle'
  device TEXT NOT NULL,             -- 'cuda:0', 'cpu'
  stream INTEGER,                   -- of a device
  thread INTEGER,                   -- of the host: the operating system's thread id
  name TEXT NOT NULL DEFAULT '',    -- for people: 'stream 7', 'main thread'
  PRIMARY KEY (run, lane)
) WITHOUT ROWID;

-- Names of activities, each kind and name once. Further kinds: 'communication' (NCCL in a recorded program, with the
-- times of its kernel), 'pass' (in a plan: a stage processes a micro-batch), 'idle' (in a plan, by cause), 'overhead'
-- (of the profiler), 'sample' (a stack sample; its text is a place of `stack`).
CREATE TABLE activity_name (
  run INTEGER NOT NULL REFERENCES run(id),
  name INTEGER NOT NULL,
  kind TEXT NOT NULL,               -- 'kernel', 'copy', 'memset', 'collective', 'api', 'range', 'sync', 'memory', 'op'
  text TEXT NOT NULL,               -- 'void cutlass::Kernel2<...>', 'cudaLaunchKernel', 'forward'
  PRIMARY KEY (run, name)
) WITHOUT ROWID;

-- Sampled stacks. A place is a frame and the place of its caller, so stacks share common callers. The text of an
-- activity_name of kind 'sample' is the number of its innermost place. Callers have smaller numbers.
CREATE TABLE stack (
  run INTEGER NOT NULL REFERENCES run(id),
  place INTEGER NOT NULL,
  caller INTEGER NOT NULL,          -- a place; 0: none
  frame INTEGER NOT NULL,           -- of stack_frame
  PRIMARY KEY (run, place)
) WITHOUT ROWID;

CREATE TABLE stack_frame (
  run INTEGER NOT NULL REFERENCES run(id),
  frame INTEGER NOT NULL,
  text TEXT NOT NULL,               -- 'forward (train.py:12)', 'SHA256_Update (libcrypto.so.3)'
  PRIMARY KEY (run, frame)
) WITHOUT ROWID;

-- Details of activities, each text once: the same kernel runs thousands of times.
CREATE TABLE activity_extra (
  run INTEGER NOT NULL REFERENCES run(id),
  extra INTEGER NOT NULL,
  text TEXT NOT NULL,               -- JSON: 'grid', 'block', 'registers', ...
  PRIMARY KEY (run, extra)
) WITHOUT ROWID;

-- Anything that took time on a device or a host, by the record's clock. No key and no index, as `event`.
CREATE TABLE activity (
  run INTEGER NOT NULL,
  id INTEGER NOT NULL,              -- within the run
  name INTEGER NOT NULL,            -- of activity_name
  lane INTEGER NOT NULL,
  start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
  correlation INTEGER,              -- equal for an API call and what it started on a device
  bytes INTEGER,                    -- moved by a copy or a collective; of kind 'memory': allocated, < 0: freed
  step INTEGER,                     -- as sample.step, if there are steps
  op INTEGER,                       -- the op of our program that it belongs to
  extra INTEGER                     -- of activity_extra
);

-- What one execution of a kernel of a foreign program computes and moves: its part of one call of an operator. Several
-- kernels share a call by their time. Of an op of ours, `op` says it. 'work:N' in `prediction` is its roof. Added within
-- schema 4, as activity_work, so early records of it lack the table.
CREATE TABLE kernel_work (
  run INTEGER NOT NULL REFERENCES run(id),
  work INTEGER NOT NULL,
  call TEXT NOT NULL,               -- the operator: 'aten::mm'
  shapes TEXT NOT NULL,             -- '[8192,4096] x [4096,4096] -> [8192,4096]'
  dtype TEXT NOT NULL,              -- of its matrix products, '' without any
  matmul_flop REAL NOT NULL, needed_flop REAL NOT NULL, -- counted, and of them those that cannot be left out
  bytes REAL NOT NULL, far_bytes REAL NOT NULL, -- read and written, and of them those that no cache can hold
  PRIMARY KEY (run, work)
) WITHOUT ROWID;

-- Which activities have which kernel_work. No key and no index, as `event`.
CREATE TABLE activity_work (
  run INTEGER NOT NULL,
  activity INTEGER NOT NULL,        -- activity.id
  work INTEGER NOT NULL
);

-- Hardware counters, if the machine has them, of a phase and scope, of an op, or of one activity.
CREATE TABLE counter (
  run INTEGER NOT NULL REFERENCES run(id),
  phase TEXT NOT NULL, scope TEXT NOT NULL, -- scope '' is all of the phase
  name TEXT NOT NULL,               -- 'flop', 'dram_read_bytes', 'cycles', 'instructions', ... (docs/record.md)
  value REAL NOT NULL,              -- per step; per execution if `op` or `activity` is set
  unit TEXT NOT NULL,
  source TEXT NOT NULL,             -- 'perf_event', 'cupti', 'shapes' (computed), 'alone' (wall times of lone ops)
  op INTEGER,
  activity INTEGER                  -- activity.id
);

-- What a device reported about itself during a run, a few times a second. Added within schema 2, so early records of it
-- lack the table. No key and no index, as `event`.
CREATE TABLE gauge (
  run INTEGER NOT NULL,
  device TEXT NOT NULL,             -- 'cuda:0'
  name TEXT NOT NULL,               -- 'power_w', 'sm_clock_hz', 'memory_clock_hz', 'temperature_c', 'gpu_utilization',
                                    -- 'throttle'; of PyTorch 'torch_allocated_bytes', 'torch_reserved_bytes', 'taken_bytes'
  time_ns INTEGER NOT NULL,
  value REAL NOT NULL,
  unit TEXT NOT NULL                -- 'W', 'Hz', 'C', 'share', 'bits' (NVML's reasons)
);

-- How many rows each expert of a layer had in a step: a token counts once for each expert that it takes. Of long runs not
-- every step has rows. Added within schema 4, so early records of it lack the table. No key and no index, as `event`.
CREATE TABLE expert_rows (
  run INTEGER NOT NULL,
  step INTEGER NOT NULL,            -- as sample.step
  layer INTEGER NOT NULL,
  micro_batch INTEGER NOT NULL,
  expert INTEGER NOT NULL,
  rows INTEGER NOT NULL             -- of this rank's tokens, wherever the expert is
);

-- Tensors of the program. `offset` is the byte offset in the arena, NULL outside it.
CREATE TABLE tensor (
  run INTEGER NOT NULL REFERENCES run(id),
  tensor INTEGER NOT NULL,
  name TEXT NOT NULL, role TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
  bytes INTEGER NOT NULL,           -- 0 for a view of another tensor
  first_op INTEGER NOT NULL, last_op INTEGER NOT NULL, -- its lifetime; -1 for persistent tensors
  offset INTEGER,
  PRIMARY KEY (run, tensor)
) WITHOUT ROWID;

-- The memory of one step: what was allocated or freed, at which op. Persistent tensors come first, at op -1. In a
-- foreign program `op` and `tensor` are NULL, and `address` identifies an allocation.
CREATE TABLE memory_event (
  run INTEGER NOT NULL REFERENCES run(id),
  seq INTEGER NOT NULL,
  op INTEGER,
  tensor INTEGER,
  device TEXT NOT NULL DEFAULT '',  -- '': the device of the run
  address INTEGER,
  bytes INTEGER NOT NULL,           -- positive: allocated; negative: freed
  live_bytes INTEGER NOT NULL,      -- afterwards, on that device
  time_ns INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

-- Predictions of the performance model. subject: 'step', 'phase:forward', 'op:12', 'scope:h.0/attention', 'work:3'.
CREATE TABLE prediction (
  run INTEGER NOT NULL REFERENCES run(id),
  subject TEXT NOT NULL,
  quantity TEXT NOT NULL,           -- 'roof_s' (least time), ...
  value REAL NOT NULL,
  unit TEXT NOT NULL,
  bound TEXT NOT NULL DEFAULT '',   -- the limiting roof: 'matmul fp32', 'DRAM copy', 'L3 read'
  PRIMARY KEY (run, subject, quantity)
) WITHOUT ROWID;

-- Tables of micro-benchmarks, plans and studies, cell by cell.
CREATE TABLE cell (
  series TEXT NOT NULL,             -- 'gemm', 'attention', 'comm', 'training', 'plan', 'serving', ...
                                    -- (docs/record.md)
  row INTEGER NOT NULL,
  col TEXT NOT NULL,
  value REAL,                       -- NULL: see text
  text TEXT NOT NULL DEFAULT '',
  unit TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (series, row, col)
);

-- The stack of each sample name, "outermost;..;innermost".
CREATE VIEW sample_stack AS
  WITH RECURSIVE part (run, name, caller, text) AS (
    SELECT n.run, n.name, s.caller, f.text
    FROM activity_name AS n JOIN stack AS s ON s.run = n.run AND s.place = CAST(n.text AS INTEGER)
    JOIN stack_frame AS f ON f.run = s.run AND f.frame = s.frame
    WHERE n.kind = 'sample'
    UNION ALL
    SELECT p.run, p.name, s.caller, f.text || ';' || p.text
    FROM part AS p JOIN stack AS s ON s.run = p.run AND s.place = p.caller AND s.caller < s.place
    JOIN stack_frame AS f ON f.run = s.run AND f.frame = s.frame)
  SELECT run, name, text FROM part WHERE caller = 0;

-- Mean times of each op over the observed steps.
CREATE VIEW op_time AS
  SELECT run, op, COUNT(*) AS instances, AVG(device_ns) * 1e-9 AS device_s, AVG(wall_ns) * 1e-9 AS wall_s,
         MIN(device_ns) * 1e-9 AS min_s, MAX(device_ns) * 1e-9 AS max_s
  FROM event GROUP BY run, op;
