#include "server/control/config_table.h"

#include "server/serve/model_config.h"

#define FIELD(field) offsetof(struct config, field)
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static const char *const mode_names[] = {"observe", "advise", "act", NULL};
static const char *const level_names[] = {"debug", "info", "warn", "error", NULL};
static const char *const format_names[] = {"text", "json", NULL};

/* clang-format off */
const struct option config_table[] = {
    {.name = "model_repository", .kind = OPTION_TEXT, .offset = FIELD(model_repository),
     .help = "Folder of models in Triton's layout; all of them are served. `--model-repository` "
             "wins over it."},
    {.name = "state", .kind = OPTION_TEXT, .offset = FIELD(state),
     .help = "Folder for what must survive: jobs, checkpoints, measurements, the Unix socket. "
             "Default: `/var/lib/tidepool` for root, else `$XDG_STATE_HOME/tidepool` or "
             "`~/.local/state/tidepool`. `--state` wins over it."},
    {.name = "user", .kind = OPTION_TEXT, .offset = FIELD(user),
     .help = "The user (name or number) that a server started as root becomes, before it opens "
             "anything; its state folder is made and given to that user. A small process forked "
             "before keeps root, to start other users' jobs. Default: it stays who it is."},
    {.name = "onnxruntime", .kind = OPTION_TEXT, .offset = FIELD(onnxruntime),
     .help = "ONNX Runtime's library. Default: `$TIDEPOOL_ONNXRUNTIME`, the one that `make deps` "
             "put beside the server, the loader's path."},
    {.name = "listeners", .kind = OPTION_JSON, .offset = FIELD(parts.listeners),
     .help = "List of addresses with their services, see below. Default: loopback 8001 (gRPC), "
             "8000 (HTTP: health, control as JSON), 8002 (metrics) and a Unix socket."},
    {.name = "http_hosts", .kind = OPTION_JSON, .offset = FIELD(parts.http_hosts),
     .help = "Names beside `localhost`, `127.x.x.x` and `[::1]` that requests to `json` may be for "
             "(their Host header), without a port. Any other name may be a trick of a web page."},
    {.name = "port_fallback", .kind = OPTION_BOOL, .offset = FIELD(port_fallback),
     .standard = "false",
     .help = "Takes a free port where the wanted one is in use, and says which."},
    {.name = "token_file", .kind = OPTION_TEXT, .offset = FIELD(token_file),
     .help = "File (mode 0600) with the token that lets a TCP client change things. Without it "
             "only the Unix socket can."},
    {.name = "mode", .kind = OPTION_CHOICE, .offset = FIELD(mode), .choices = mode_names,
     .standard = "\"act\"",
     .help = "`observe` records what would be moved, `advise` shows it, `act` moves. What was set "
             "by a call is remembered and wins."},
    {.name = "network_threads", .kind = OPTION_INT, .offset = FIELD(network_threads),
     .minimum = 0, .maximum = 64, .standard = "0",
     .help = "Threads for gRPC connections; 0: one for each 4 cores."},
    {.name = "inline_us", .kind = OPTION_INT, .offset = FIELD(inline_us), .unit = "µs",
     .minimum = 0, .maximum = 1000, .standard = "50",
     .help = "A request alone at an idle device that does not train runs on its network thread "
             "when its run is known to take no longer: no thread has to be woken for it. 0: "
             "never."},
    {.name = "drain_s", .kind = OPTION_NUMBER, .offset = FIELD(drain_s), .unit = "s",
     .minimum = 0, .maximum = 600, .standard = "10",
     .help = "How long accepted requests may take to finish when the server is told to stop."},
    {.name = "testing", .kind = OPTION_BOOL, .offset = FIELD(testing), .standard = "false",
     .help = "Lets every client that may change things make a device fail on purpose."},
    {.name = "teams", .kind = OPTION_JSON, .offset = FIELD(parts.teams),
     .help = "List of teams with their weights and quotas, see below. A team that is not in it has "
             "weight 1 and no quota."},
    {.name = "devices", .kind = OPTION_JSON, .offset = FIELD(parts.devices),
     .help = "How the machine is cut into devices, see below."},
    {.name = "limits", .kind = OPTION_JSON, .offset = FIELD(parts.limits),
     .help = "Bounds on what clients may take, see below."},
    {.name = "planner", .kind = OPTION_JSON, .offset = FIELD(parts.planner),
     .help = "When devices move, see below."},
    {.name = "record", .kind = OPTION_JSON, .offset = FIELD(parts.record),
     .help = "The log of events from which every decision can be repeated, see below."},
    {.name = "log", .kind = OPTION_JSON, .offset = FIELD(parts.log),
     .help = "What is logged to standard error and how, see below."},
};
const size_t config_table_count = COUNT(config_table);

const struct option config_listener_table[] = {
    {.name = "address", .kind = OPTION_TEXT,
     .offset = offsetof(struct config_listener_entry, address), .required = true,
     .help = "`HOST:PORT`, `[IPV6]:PORT` (port 0: any free one) or `unix:PATH`"},
    {.name = "services", .kind = OPTION_JSON,
     .offset = offsetof(struct config_listener_entry, services), .required = true,
     .help = "gRPC: `inference`, `health`, `control` (with KEDA's external scaler); or HTTP: `http` "
             "(health), `metrics`, `json` (the control API)"},
};
const size_t config_listener_table_count = COUNT(config_listener_table);

const struct option config_team_table[] = {
    {.name = "name", .kind = OPTION_TEXT, .offset = offsetof(struct config_team, name),
     .required = true, .help = "as jobs name it (`team`)"},
    {.name = "weight", .kind = OPTION_INT, .offset = offsetof(struct config_team, weight),
     .minimum = 1, .maximum = 1000000, .standard = "1",
     .help = "share of what is beyond all quotas"},
    {.name = "quota", .kind = OPTION_JSON, .offset = offsetof(struct config_team, quota),
     .help = "devices by kind, `{\"cpu\": 2}`: what it gets back whenever it wants them; others use "
             "them meanwhile"},
};
const size_t config_team_table_count = COUNT(config_team_table);

static const struct option devices_table[] = {
    {.name = "cpu_devices", .kind = OPTION_INT, .offset = FIELD(devices.cpu_devices),
     .minimum = 0, .maximum = 64, .standard = "0",
     .help = "CPU devices; 0: the physical cores in at most 8 equal devices, one core kept for "
             "the network where there are more than two."},
    {.name = "cores_per_device", .kind = OPTION_INT, .offset = FIELD(devices.cores_per_device),
     .minimum = 0, .maximum = 1024, .standard = "0", .help = "0: equal shares."},
    {.name = "memory_mib", .kind = OPTION_INT, .offset = FIELD(devices.memory_mib), .unit = "MiB",
     .minimum = 0, .maximum = 1 << 30, .standard = "0",
     .help = "Memory of each device for models and training; 0: an equal share."},
};

static const struct option limits_table[] = {
    {.name = "message_mib", .kind = OPTION_INT, .offset = FIELD(limits.message_mib), .unit = "MiB",
     .minimum = 1, .maximum = 2047, .standard = "64",
     .help = "Largest request or answer; more is RESOURCE_EXHAUSTED."},
    {.name = "requests_mib", .kind = OPTION_INT, .offset = FIELD(limits.requests_mib),
     .unit = "MiB", .minimum = 1, .maximum = 1 << 24, .standard = "4096",
     .help = "Bodies of requests held at once by the whole server."},
    {.name = "streams", .kind = OPTION_INT, .offset = FIELD(limits.streams), .minimum = 1,
     .maximum = 1 << 20, .standard = "1000", .help = "Calls at once on one connection."},
    {.name = "connections", .kind = OPTION_INT, .offset = FIELD(limits.connections), .minimum = 1,
     .maximum = 1 << 20, .standard = "1024", .help = "gRPC connections at once."},
    {.name = "calls", .kind = OPTION_INT, .offset = FIELD(limits.calls), .minimum = 1,
     .maximum = 1 << 24, .standard = "65536", .help = "Calls at once on the whole server."},
    {.name = "ping_interval_ms", .kind = OPTION_INT, .offset = FIELD(limits.ping_interval_ms),
     .unit = "ms", .minimum = 1, .maximum = 86400000, .standard = "5000",
     .help = "Least time between two pings of a client, with or without a call open; after two "
             "that come sooner the third ends the connection with `too_many_pings`."},
};

static const struct option planner_table[] = {
    {.name = "demand_fast_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.demand_fast_s),
     .unit = "s", .minimum = 0.05, .maximum = 60, .standard = "1",
     .help = "Window of the fast arrival rate: how soon a burst counts."},
    {.name = "demand_slow_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.demand_slow_s),
     .unit = "s", .minimum = 0.1, .maximum = 3600, .standard = "10",
     .help = "Window of the slow arrival rate: how long a lull must last to count."},
    {.name = "late_budget", .kind = OPTION_NUMBER, .offset = FIELD(planner.late_budget),
     .minimum = 0, .maximum = 1, .standard = "0.01",
     .help = "The one knob: share of the work that may be late for want of devices lent to jobs; "
             "an endpoint's `target` may leave less."},
    {.name = "load_high", .kind = OPTION_NUMBER, .offset = FIELD(planner.load_high),
     .minimum = 0.05, .maximum = 1, .standard = "0.8",
     .help = "More devices serve when the load of each would be above this share, where no job must "
             "be asked for them."},
    {.name = "load_low", .kind = OPTION_NUMBER, .offset = FIELD(planner.load_low),
     .minimum = 0.01, .maximum = 1, .standard = "0.6",
     .help = "Fewer devices serve when the load of the rest would stay under this share."},
    {.name = "shrink_high", .kind = OPTION_NUMBER, .offset = FIELD(planner.shrink_high),
     .minimum = 0.1, .maximum = 1, .standard = "0.85",
     .help = "A job gives up a device on which serving takes this share of the time …"},
    {.name = "shrink_after_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.shrink_after_s),
     .unit = "s", .minimum = 0.1, .maximum = 3600, .standard = "3", .help = "… for so long."},
    {.name = "shrink_low", .kind = OPTION_NUMBER, .offset = FIELD(planner.shrink_low),
     .minimum = 0.05, .maximum = 1, .standard = "0.7",
     .help = "Training may have the device again when serving takes less than this share …"},
    {.name = "cool_down_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.cool_down_s),
     .unit = "s", .minimum = 0, .maximum = 3600, .standard = "3", .help = "… for so long."},
    {.name = "hold_min_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.hold_min_s), .unit = "s",
     .minimum = 0, .maximum = 3600, .standard = "1",
     .help = "Least time between two moves of a device (the measured hand-over if longer)."},
    {.name = "notice_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.notice_s), .unit = "s",
     .minimum = 0, .maximum = 3600, .standard = "30",
     .help = "Notice given to a holder that must save before it leaves."},
    {.name = "extension_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.extension_s),
     .unit = "s", .minimum = 0, .maximum = 3600, .standard = "30",
     .help = "Longest extension of a notice, which its holder may ask for once."},
    {.name = "stopped_cap_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.stopped_cap_s),
     .unit = "s", .minimum = 0.1, .maximum = 86400, .standard = "60",
     .help = "Longest time for which a job is stopped in place (freeze, pause, swap)."},
    {.name = "sustained_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.sustained_s),
     .unit = "s", .minimum = 0, .maximum = 3600, .standard = "10",
     .help = "A burst this long is load that stays: a lasting device is sought for a stopped job's."},
    {.name = "kill_bound_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.kill_bound_s),
     .unit = "s", .minimum = 0.1, .maximum = 3600, .standard = "10",
     .help = "From a missed deadline to the device's quarantine."},
    {.name = "scale_lead_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.scale_lead_s),
     .unit = "s", .minimum = 0, .maximum = 86400, .standard = "60",
     .help = "How long a device takes that a provider is asked for, where it has not told: the "
             "scale signal is for then."},
    {.name = "scale_hold_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.scale_hold_s),
     .unit = "s", .minimum = 0, .maximum = 86400, .standard = "300",
     .help = "The scale signal falls to the highest figure of so long."},
    {.name = "leave_lead_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.leave_lead_s),
     .unit = "s", .minimum = 0, .maximum = 86400, .standard = "30",
     .help = "Before a device is taken back serving moves away so long before; its holder has so "
             "long beyond its notice and `kill_bound_s`."},
    {.name = "leave_useful_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.leave_useful_s),
     .unit = "s", .minimum = 0, .maximum = 86400, .standard = "60",
     .help = "Nothing new comes onto a device that it could have for less."},
    {.name = "slow", .kind = OPTION_NUMBER, .offset = FIELD(planner.slow), .minimum = 0.001,
     .maximum = 1, .standard = "0.9",
     .help = "A device below this share of its kind's speed is chosen last …"},
    {.name = "drain", .kind = OPTION_NUMBER, .offset = FIELD(planner.drain), .minimum = 0,
     .maximum = 1, .standard = "0.6",
     .help = "… and one below this share (less than `slow`) …"},
    {.name = "drain_after_s", .kind = OPTION_NUMBER, .offset = FIELD(planner.drain_after_s),
     .unit = "s", .minimum = 0, .maximum = 86400, .standard = "60",
     .help = "… for so long is drained, until it has been as fast as `slow` for so long."},
    {.name = "health_budget", .kind = OPTION_NUMBER, .offset = FIELD(planner.health_budget),
     .minimum = 0, .maximum = 1, .standard = "0.125",
     .help = "At most this share of all devices is drained for slowness."},
    {.name = "moves_per_hour", .kind = OPTION_INT, .offset = FIELD(planner.moves_per_hour),
     .minimum = 1, .maximum = 100000, .standard = "120",
     .help = "Hand-overs of one device in an hour (slices are not counted)."},
    {.name = "moves_extra", .kind = OPTION_INT, .offset = FIELD(planner.moves_extra),
     .minimum = 0, .maximum = 100000, .standard = "4",
     .help = "So many more when an SLO is in danger."},
};

static const struct option record_table[] = {
    {.name = "enabled", .kind = OPTION_BOOL, .offset = FIELD(record.enabled), .standard = "true",
     .help = "Writes every event that the planner is told to `events/events-<start>-<part>.log` in "
             "the state folder; `tidepool sim --replay FILE` repeats its decisions from that. The "
             "files hold the seed of fencing tokens and are readable for their owner alone."},
    {.name = "max_mib", .kind = OPTION_INT, .offset = FIELD(record.max_mib), .unit = "MiB",
     .minimum = 1, .maximum = 1 << 20, .standard = "256",
     .help = "All these files together, at any time: the oldest go first. What begins in the middle "
             "of a start of the server is replayed without what was learned before."},
};

static const struct option log_table[] = {
    {.name = "level", .kind = OPTION_CHOICE, .offset = FIELD(log.level), .choices = level_names,
     .standard = "\"info\"", .help = "The least severe lines that are written."},
    {.name = "format", .kind = OPTION_CHOICE, .offset = FIELD(log.format), .choices = format_names,
     .standard = "\"text\"", .help = "`key=value` lines or one JSON object a line."},
};
/* clang-format on */

const struct config_part config_parts[] = {
    {"devices", FIELD(parts.devices), devices_table, COUNT(devices_table)},
    {"limits", FIELD(parts.limits), limits_table, COUNT(limits_table)},
    {"planner", FIELD(parts.planner), planner_table, COUNT(planner_table)},
    {"record", FIELD(parts.record), record_table, COUNT(record_table)},
    {"log", FIELD(parts.log), log_table, COUNT(log_table)},
};
const size_t config_parts_count = COUNT(config_parts);

void config_print_help(FILE *out)
{
    fputs("# Configuration\n\n"
          "<!-- Printed by `tidepoold --help-config`; change the tables in\n"
          "     server/control/config_table.c and print it again. -->\n\n"
          "`tidepoold --config FILE` reads one JSON file; without it everything below has its\n"
          "default. An unknown key, a wrong type or a number out of range is an error that names\n"
          "it; `tidepoold --check FILE` only looks. Paths are relative to the folder that the\n"
          "server is started in. SIGHUP reads the file again: `log`, `testing` and the token's\n"
          "file change at once, the log says what needs a restart.\n\n"
          "`config/demo.json` is what `make run` uses.\n\n"
          "## The file\n\n",
          out);
    options_print(config_table, config_table_count, out);
    fputs("\n## Each entry of `listeners`\n\n", out);
    options_print(config_listener_table, config_listener_table_count, out);
    fputs("\nWhere no listener is a Unix socket one is added for `inference`, `health` and\n"
          "`control`: `/run/tidepool/tidepool.sock` with the state folder `/var/lib/tidepool`,\n"
          "else `tidepool.sock` in the state folder. A TCP client may read the control API;\n"
          "what changes something needs the token (`token_file`).\n",
          out);
    fputs("\n## Each entry of `teams`\n\n", out);
    options_print(config_team_table, config_team_table_count, out);
    for (size_t i = 0; i < config_parts_count; i++) {
        fprintf(out, "\n## `%s`\n\n", config_parts[i].name);
        options_print(config_parts[i].table, config_parts[i].count, out);
    }
    fputs("\n## A model's `config.json`\n\n"
          "In the model's folder, beside its versions; a `config.pbtxt` in Triton's form is read\n"
          "where there is no `config.json`.\n\n",
          out);
    model_config_print(out);
}
