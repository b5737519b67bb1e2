// Reads records of older schemas.
#include "record/migrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "core/error.h"

namespace rooflm::record {

namespace {

/// Version 1 had one column per configuration field and no activities. Wall times of steps replayed on a GPU
/// were copies of the device times, not measured.
constexpr std::string_view kFromVersion1 = R"sql(
CREATE TABLE config (run INTEGER NOT NULL, key TEXT NOT NULL, value NOT NULL, type TEXT NOT NULL,
                     PRIMARY KEY (run, key)) WITHOUT ROWID;
INSERT INTO config
  SELECT id, 'model', model, 'text' FROM run WHERE model <> '' UNION ALL
  SELECT id, 'arch', arch, 'text' FROM run WHERE arch <> '' UNION ALL
  SELECT id, 'engine', engine, 'text' FROM run WHERE engine <> '' UNION ALL
  SELECT id, 'attention', attention, 'text' FROM run WHERE attention <> '' UNION ALL
  SELECT id, 'device', device, 'text' FROM run WHERE device <> '' UNION ALL
  SELECT id, 'dtype', dtype, 'text' FROM run WHERE dtype <> '' UNION ALL
  SELECT id, 'recompute', recompute, 'text' FROM run WHERE recompute <> '' UNION ALL
  SELECT id, 'batch', batch, 'integer' FROM run UNION ALL
  SELECT id, 'seq', seq, 'integer' FROM run UNION ALL
  SELECT id, 'vocab', vocab, 'integer' FROM run UNION ALL
  SELECT id, 'layers', layers, 'integer' FROM run UNION ALL
  SELECT id, 'heads', heads, 'integer' FROM run UNION ALL
  SELECT id, 'kv_heads', kv_heads, 'integer' FROM run UNION ALL
  SELECT id, 'd_model', d_model, 'integer' FROM run UNION ALL
  SELECT id, 'd_ff', d_ff, 'integer' FROM run UNION ALL
  SELECT id, 'params', params, 'integer' FROM run UNION ALL
  SELECT id, 'grad_accum', grad_accum, 'integer' FROM run UNION ALL
  SELECT id, 'threads', threads, 'integer' FROM run UNION ALL
  SELECT id, 'seed', seed, 'integer' FROM run UNION ALL
  SELECT id, 'warmup', warmup, 'integer' FROM run;
CREATE TABLE lane (run INTEGER NOT NULL, lane INTEGER NOT NULL, kind TEXT NOT NULL, device TEXT NOT NULL,
                   stream INTEGER, thread INTEGER, name TEXT NOT NULL DEFAULT '',
                   PRIMARY KEY (run, lane)) WITHOUT ROWID;
CREATE TABLE activity_name (run INTEGER NOT NULL, name INTEGER NOT NULL, kind TEXT NOT NULL,
                            text TEXT NOT NULL, PRIMARY KEY (run, name)) WITHOUT ROWID;
CREATE TABLE activity (run INTEGER NOT NULL, id INTEGER NOT NULL, name INTEGER NOT NULL,
                       lane INTEGER NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
                       correlation INTEGER, bytes INTEGER, step INTEGER, op INTEGER, extra TEXT);
CREATE TABLE gauge (run INTEGER NOT NULL, device TEXT NOT NULL, name TEXT NOT NULL, time_ns INTEGER NOT NULL,
                    value REAL NOT NULL, unit TEXT NOT NULL);
CREATE TABLE event_2 (run INTEGER NOT NULL, step INTEGER NOT NULL, op INTEGER NOT NULL,
                      start_ns INTEGER NOT NULL, device_ns INTEGER NOT NULL, wall_ns INTEGER);
INSERT INTO event_2
  SELECT e.run, e.step, e.op, e.start_ns, e.device_ns,
         CASE WHEN run.device LIKE 'cuda%' AND e.wall_ns = e.device_ns THEN NULL ELSE e.wall_ns END
  FROM event AS e JOIN run ON run.id = e.run ORDER BY e.rowid;
DROP VIEW op_time;
DROP TABLE event;
ALTER TABLE event_2 RENAME TO event;
CREATE VIEW op_time AS
  SELECT run, op, COUNT(*) AS instances, AVG(device_ns) * 1e-9 AS device_s, AVG(wall_ns) * 1e-9 AS wall_s,
         MIN(device_ns) * 1e-9 AS min_s, MAX(device_ns) * 1e-9 AS max_s
  FROM event GROUP BY run, op;
CREATE TABLE memory_event_2 (run INTEGER NOT NULL, seq INTEGER NOT NULL, op INTEGER, tensor INTEGER,
                             device TEXT NOT NULL DEFAULT '', address INTEGER, bytes INTEGER NOT NULL,
                             live_bytes INTEGER NOT NULL, time_ns INTEGER NOT NULL DEFAULT 0,
                             PRIMARY KEY (run, seq)) WITHOUT ROWID;
INSERT INTO memory_event_2
  SELECT run, seq, op, tensor, '', NULL, bytes, live_bytes, time_ns FROM memory_event;
DROP TABLE memory_event;
ALTER TABLE memory_event_2 RENAME TO memory_event;
ALTER TABLE op ADD COLUMN library TEXT NOT NULL DEFAULT '';
ALTER TABLE op ADD COLUMN variant TEXT NOT NULL DEFAULT '';
ALTER TABLE op ADD COLUMN workspace_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE op ADD COLUMN lane TEXT NOT NULL DEFAULT 'compute';
ALTER TABLE counter ADD COLUMN op INTEGER;
ALTER TABLE counter ADD COLUMN activity INTEGER;
CREATE TABLE run_2 (id INTEGER PRIMARY KEY, label TEXT NOT NULL, kind TEXT NOT NULL DEFAULT 'step',
                    status TEXT NOT NULL);
INSERT INTO run_2 SELECT id, label, 'step', status FROM run;
DROP TABLE run;
ALTER TABLE run_2 RENAME TO run;
UPDATE meta SET value = '2' WHERE key = 'schema';
)sql";

/// Version 2 repeated a kernel's details in every activity. Its first records had no gauges.
constexpr std::string_view kFromVersion2 = R"sql(
CREATE TABLE IF NOT EXISTS gauge (run INTEGER NOT NULL, device TEXT NOT NULL, name TEXT NOT NULL,
                                  time_ns INTEGER NOT NULL, value REAL NOT NULL, unit TEXT NOT NULL);
CREATE TABLE activity_extra (run INTEGER NOT NULL, extra INTEGER NOT NULL, text TEXT NOT NULL,
                             PRIMARY KEY (run, extra)) WITHOUT ROWID;
INSERT INTO activity_extra
  SELECT run, ROW_NUMBER() OVER (PARTITION BY run ORDER BY extra) - 1, extra
  FROM (SELECT DISTINCT run, extra FROM activity WHERE extra IS NOT NULL);
CREATE INDEX activity_extra_text ON activity_extra (run, text);
UPDATE activity SET extra = (SELECT e.extra FROM activity_extra AS e
                             WHERE e.run = activity.run AND e.text = activity.extra)
  WHERE extra IS NOT NULL;
DROP INDEX activity_extra_text;
UPDATE meta SET value = '3' WHERE key = 'schema';
)sql";

/// Version 3 repeated callers in the name of each sampled stack. Its names remain: in a run without places,
/// names are texts.
constexpr std::string_view kFromVersion3 = R"sql(
CREATE TABLE stack (run INTEGER NOT NULL, place INTEGER NOT NULL, caller INTEGER NOT NULL,
                    frame INTEGER NOT NULL, PRIMARY KEY (run, place)) WITHOUT ROWID;
CREATE TABLE stack_frame (run INTEGER NOT NULL, frame INTEGER NOT NULL, text TEXT NOT NULL,
                          PRIMARY KEY (run, frame)) WITHOUT ROWID;
UPDATE meta SET value = '4' WHERE key = 'schema';
)sql";

constexpr std::array kMigrations = {Migration{.from = 1, .sql = kFromVersion1},
                                    Migration{.from = 2, .sql = kFromVersion2},
                                    Migration{.from = 3, .sql = kFromVersion3}};

}  // namespace

std::span<const Migration> migrations() { return kMigrations; }

std::unique_ptr<Database> migrated(const Database& record, int from, int to,
                                   std::span<const Migration> steps) {
  auto copy = std::make_unique<Database>(record);
  copy->distrust();
  for (int version = from; version < to; ++version) {
    const auto step = std::ranges::find(steps, version, &Migration::from);
    if (step == steps.end()) {
      throw core::InputError(fmt::format("cannot read {}: nothing leads from schema {} to {}",
                                         record.path().string(), version, version + 1));
    }
    copy->execute(fmt::format("BEGIN; {}; PRAGMA user_version = {}; COMMIT;", step->sql, version + 1));
  }
  return copy;
}

}  // namespace rooflm::record
