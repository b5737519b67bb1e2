-- The run record: everything that one command measured or predicted. docs/record.md explains it table by table.
-- Seconds, bytes, flop throughout. Times of events and activities are nanoseconds since meta 'epoch_utc_ns'.

-- One row per key: 'schema' (the version, as in PRAGMA user_version), 'rooflm_version', 'command' (the command line),
-- 'started_utc', 'finished_utc' (absent: the run was cut short or still goes on), 'revision' (git, of rooflm),
-- 'epoch_utc_ns' (nanoseconds since 1970: zero of the record's clock; absent in records of schema 1).
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

-- The machine as it was found: 'cpu', 'gpu', 'cores', 'threads', 'memory', 'kernel', 'compiler', library versions.
CREATE TABLE environment (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  unit TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- Ceilings of the devices, measured or from a catalog.
CREATE TABLE ceiling (
  id INTEGER PRIMARY KEY,
  device TEXT NOT NULL,             -- 'cpu', 'cuda:0'
  what TEXT NOT NULL,               -- 'matmul', 'instruction', 'read', 'write', 'update', 'copy', 'triad', 'adamw'
  level TEXT NOT NULL DEFAULT '',   -- 'L1', 'L2', 'L3', 'DRAM'; '' for arithmetic
  dtype TEXT NOT NULL DEFAULT '',
  threads INTEGER NOT NULL DEFAULT 0,
  value REAL NOT NULL,              -- median, per second
  unit TEXT NOT NULL,               -- 'flop/s', 'byte/s'
  ci_low REAL, ci_high REAL,
  samples INTEGER NOT NULL DEFAULT 0,
  problem TEXT NOT NULL DEFAULT '', -- what was run: '1024x1024x1024'
  source TEXT NOT NULL,             -- 'measured', 'catalog'
  measured_utc TEXT NOT NULL DEFAULT ''
);

-- Something that was run, planned, or did not fit. A sweep has several.
CREATE TABLE run (
  id INTEGER PRIMARY KEY,
  label TEXT NOT NULL,              -- 'gpt2 B=4 T=64 fp32 fused flash'
  kind TEXT NOT NULL DEFAULT 'step', -- 'step' (a training step), 'train', 'gemm', 'attention', 'foreign' (not ours), 'rank' (facts 'rank', 'rank_of'), ...
  status TEXT NOT NULL              -- 'running', 'success', 'oom', 'planned', 'failed', 'interrupted'
);

-- The configuration of a run, field by field (src/record/config.cpp has the fields); a foreign program may have none.
CREATE TABLE config (
  run INTEGER NOT NULL REFERENCES run(id),
  key TEXT NOT NULL,                -- 'model', 'batch', 'grad_accum', 'clip', ...
  value NOT NULL,                   -- as its type says; a flag is 0 or 1
  type TEXT NOT NULL,               -- 'text', 'integer', 'number', 'flag'
  PRIMARY KEY (run, key)
) WITHOUT ROWID;

-- Numbers and sentences about a run that have no table of their own: 'model_flop', 'matmul_flop', 'peak_flop_per_s',
-- 'plan_bytes', 'state_bytes', 'needed_bytes', 'free_bytes', 'rss_increase_bytes', 'stop_reason', 'drift',
-- 'observer_cost' (share of the step), 'allocations', 'fragmentation', ... Keys are listed in docs/record.md.
CREATE TABLE fact (
  run INTEGER NOT NULL REFERENCES run(id),
  key TEXT NOT NULL,
  value REAL,                       -- NULL when the fact is a sentence
  unit TEXT NOT NULL DEFAULT '',
  text TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (run, key)
) WITHOUT ROWID;

-- Wall time of one phase of one step. phase 'step' is the whole step.
CREATE TABLE sample (
  run INTEGER NOT NULL REFERENCES run(id),
  step INTEGER NOT NULL,            -- counts from 0, warm-up steps included
  phase TEXT NOT NULL,              -- 'forward', 'backward', 'optimizer', 'step'
  seconds REAL NOT NULL,
  kind TEXT NOT NULL DEFAULT 'plain', -- 'warmup', 'plain' (no observer), 'observed'
  outlier INTEGER NOT NULL DEFAULT 0, -- further than 5 normalised MAD from the median; kept in all statistics
  PRIMARY KEY (run, step, phase)
) WITHOUT ROWID;

-- The program that ran: op by op, with what it costs by its shapes.
CREATE TABLE op (
  run INTEGER NOT NULL REFERENCES run(id),
  op INTEGER NOT NULL,              -- position in the program
  kind TEXT NOT NULL,               -- 'matmul', 'add_layernorm', ...
  class TEXT NOT NULL,              -- 'matmul', 'attention', 'elementwise', 'norm', 'softmax', 'loss', 'copy', 'optimizer'
  kernel TEXT NOT NULL,             -- what ran it: name of the kernel as a summary shows it
  library TEXT NOT NULL DEFAULT '', -- whose kernel that is: 'cuBLASLt 12.8', 'oneDNN 3.1', 'rooflm'
  variant TEXT NOT NULL DEFAULT '', -- which of its algorithms: 'algo 66, tile 256x128, stages 4'
  workspace_bytes INTEGER NOT NULL DEFAULT 0, -- scratch memory that the kernel uses
  lane TEXT NOT NULL DEFAULT 'compute', -- 'background': it may run beside the ops after it, whatever their phase
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

-- One execution of an op in an observed step. `device_ns` is what its kernels took, `wall_ns` the time from the end of
-- the op before it (or the start of the step) to its own end: dispatch, allocation and waiting included; NULL where
-- nobody measured it (a step that is replayed as a whole on a GPU).
CREATE TABLE event (
  run INTEGER NOT NULL,
  step INTEGER NOT NULL,
  op INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,        -- when its kernel was entered
  device_ns INTEGER NOT NULL,
  wall_ns INTEGER
);

-- Where activities happen: a stream of a device, a thread of the host.
CREATE TABLE lane (
  run INTEGER NOT NULL REFERENCES run(id),
  lane INTEGER NOT NULL,
  kind TEXT NOT NULL,               -- 'device', 'host', 'link'
  device TEXT NOT NULL,             -- 'cuda:0', 'cpu'
  stream INTEGER,                   -- of a device
  thread INTEGER,                   -- of the host, as the operating system numbers it
  name TEXT NOT NULL DEFAULT '',    -- for people: 'stream 7', 'main thread'
  PRIMARY KEY (run, lane)
) WITHOUT ROWID;

-- What activities are called: each kind and name once.
CREATE TABLE activity_name (
  run INTEGER NOT NULL REFERENCES run(id),
  name INTEGER NOT NULL,
  kind TEXT NOT NULL,               -- 'kernel', 'copy', 'memset', 'collective', 'api', 'range', 'sync', 'memory', 'op'
  text TEXT NOT NULL,               -- 'void cutlass::Kernel2<...>', 'cudaLaunchKernel', 'forward'
  PRIMARY KEY (run, name)
) WITHOUT ROWID;

-- Stacks of samples: each place is a frame and the place that called it, so that stacks share what they have in common. An
-- activity_name of kind 'sample' has the number of its innermost place as its text. Callers have smaller numbers.
CREATE TABLE stack (
  run INTEGER NOT NULL REFERENCES run(id),
  place INTEGER NOT NULL,
  caller INTEGER NOT NULL,          -- a place; 0: the outermost
  frame INTEGER NOT NULL,           -- of stack_frame
  PRIMARY KEY (run, place)
) WITHOUT ROWID;

CREATE TABLE stack_frame (
  run INTEGER NOT NULL REFERENCES run(id),
  frame INTEGER NOT NULL,
  text TEXT NOT NULL,               -- 'forward (train.py:12)', 'SHA256_Update (libcrypto.so.3)'
  PRIMARY KEY (run, frame)
) WITHOUT ROWID;

-- What else is known of activities, each text once: the same kernel runs thousands of times.
CREATE TABLE activity_extra (
  run INTEGER NOT NULL REFERENCES run(id),
  extra INTEGER NOT NULL,
  text TEXT NOT NULL,               -- JSON: 'grid', 'block', 'registers', ...
  PRIMARY KEY (run, extra)
) WITHOUT ROWID;

-- Anything that took time on a device or a host, in one clock. No key and no index, as `event`.
CREATE TABLE activity (
  run INTEGER NOT NULL,
  id INTEGER NOT NULL,              -- within the run
  name INTEGER NOT NULL,            -- of activity_name
  lane INTEGER NOT NULL,
  start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
  correlation INTEGER,              -- the same for a call and for what it started on a device
  bytes INTEGER,                    -- moved, by copies and collectives
  step INTEGER,                     -- of sample, where there are steps
  op INTEGER,                       -- the op of our program that it is part of
  extra INTEGER                     -- of activity_extra
);

-- Hardware counters, where the machine has them, of a phase and scope, of an op, or of one activity.
CREATE TABLE counter (
  run INTEGER NOT NULL REFERENCES run(id),
  phase TEXT NOT NULL, scope TEXT NOT NULL, -- scope '' is all of the phase
  name TEXT NOT NULL,               -- 'flop', 'dram_bytes', 'cycles', 'instructions', ...
  value REAL NOT NULL,              -- per step; of one execution where `op` or `activity` is set
  unit TEXT NOT NULL,
  source TEXT NOT NULL,             -- 'perf_event', 'shapes'
  op INTEGER,
  activity INTEGER                  -- activity.id
);

-- What a device told of itself while a run went on, a few times a second. Added within schema 2: older records of it have
-- none. No key and no index, as `event`.
CREATE TABLE gauge (
  run INTEGER NOT NULL,
  device TEXT NOT NULL,             -- 'cuda:0'
  name TEXT NOT NULL,               -- 'power_w', 'sm_clock_hz', 'memory_clock_hz', 'temperature_c', 'gpu_utilization', 'throttle'
  time_ns INTEGER NOT NULL,
  value REAL NOT NULL,
  unit TEXT NOT NULL                -- 'W', 'Hz', 'C', 'share', 'bits' (NVML's reasons)
);

-- Tensors of the program. `offset` is the place in the arena, NULL outside it.
CREATE TABLE tensor (
  run INTEGER NOT NULL REFERENCES run(id),
  tensor INTEGER NOT NULL,
  name TEXT NOT NULL, role TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  first_op INTEGER NOT NULL, last_op INTEGER NOT NULL, -- ops between which it is alive; -1 for persistent ones
  offset INTEGER,
  PRIMARY KEY (run, tensor)
) WITHOUT ROWID;

-- Memory as one step saw it: what was allocated or freed, at which op. Persistent tensors come first, at op -1. Of a
-- foreign program, `op` and `tensor` are NULL and `address` says what is freed.
CREATE TABLE memory_event (
  run INTEGER NOT NULL REFERENCES run(id),
  seq INTEGER NOT NULL,
  op INTEGER,
  tensor INTEGER,
  device TEXT NOT NULL DEFAULT '',  -- '' is the device of the run
  address INTEGER,
  bytes INTEGER NOT NULL,           -- positive: allocated; negative: freed
  live_bytes INTEGER NOT NULL,      -- afterwards, on that device
  time_ns INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, seq)
) WITHOUT ROWID;

-- What the performance model expects. subject 'step', 'phase:forward', 'op:12', 'scope:h.0/attention'.
CREATE TABLE prediction (
  run INTEGER NOT NULL REFERENCES run(id),
  subject TEXT NOT NULL,
  quantity TEXT NOT NULL,           -- 'roof_s', 'bytes', ...
  value REAL NOT NULL,
  unit TEXT NOT NULL,
  bound TEXT NOT NULL DEFAULT '',   -- which roof: 'matmul fp32', 'DRAM copy', 'L3 read'
  PRIMARY KEY (run, subject, quantity)
) WITHOUT ROWID;

-- Rows of micro-benchmarks and studies that are no training step (GEMM strategies, number formats): one cell each.
CREATE TABLE cell (
  series TEXT NOT NULL,             -- 'gemm', 'formats'
  row INTEGER NOT NULL,
  col TEXT NOT NULL,
  value REAL,                       -- NULL: see text
  text TEXT NOT NULL DEFAULT '',
  unit TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (series, row, col)
);

-- Stacks of samples by their names, "outermost;..;innermost".
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

-- Mean times of an op over the observed steps are asked for so often that they have a view.
CREATE VIEW op_time AS
  SELECT run, op, COUNT(*) AS instances, AVG(device_ns) * 1e-9 AS device_s, AVG(wall_ns) * 1e-9 AS wall_s,
         MIN(device_ns) * 1e-9 AS min_s, MAX(device_ns) * 1e-9 AS max_s
  FROM event GROUP BY run, op;
