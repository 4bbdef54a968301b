/* Topics of `berth help` that are not commands: job file, filters, hosts, formats and the like.
 * Lists in them come from the tables that the program itself goes by. */
#include "cli/help.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "inventory/filter.h"
#include "planner/constants.h"
#include "planner/data_kind.h"
#include "planner/evidence.h"
#include "planner/job.h"
#include "planner/model.h"
#include "planner/schedule.h"
#include "planner/training.h"
#include "planner/what_if.h"

static void write_evidence(struct str *s)
{
    str_add(s, "Tables of measured runs, for berth validate and berth calibrate\n\n"
               "CSV, one run a row. id, gpu, n_gpus, n_layers and d_model must be there;\n"
               "what other columns leave open is assumed, and widens the band.\n\n");
    for (int i = 0; evidence_column_at(i)->name; i++)
        str_addf(s, "  %-22s %s\n", evidence_column_at(i)->name, evidence_column_at(i)->help);
    str_add(s, "\nWhy a run is not predicted:\n\n");
    for (int i = 0; i < SKIP_COUNT; i++)
        str_addf(s, "  %-22s %s\n", skip_word((enum skip)i), skip_help((enum skip)i));
}

static void write_exit_codes(struct str *s)
{
    str_add(s,
        "Exit codes\n\n"
        "    0  done; for launch, attach, wait and logs --follow: the run succeeded\n"
        "    1  failed, and no other code says it better\n"
        "    2  usage: unknown option, bad value, missing terminal, an input file that is\n"
        "       absent, unreadable or wrong\n"
        "    3  nothing fits: no plan satisfies memory, budget or deadline\n"
        "    4  not authenticated or not allowed, at a provider or a node\n"
        "    5  network or provider trouble; may be tried again\n"
        "    6  a node failed its checks or could not be reached\n"
        "    7  a confirmation was needed and not given\n"
        "   10  the run failed\n"
        "   11  the run is not finished (status --exit-code)\n"
        "   12  the run was cancelled\n"
        "  130  interrupted\n\n"
        "With --json a command that reached its answer prints the answer's own document\n"
        "whatever the code; codes 1, 2 and 4 to 7 print error/1:\n"
        "  {\"schema\": \"error/1\", \"code\": \"auth\", \"message\": \"…\", \"hint\": null}\n");
}

static void put_env(struct str *s, const struct option *o)
{
    char name[64];
    str_addf(s, "  %-26s as --%s\n", option_env(o, name), o->name);
}

static void write_environment(struct str *s)
{
    str_add(s, "Environment variables\n\n"
               "  BERTH_HOME                 one folder for everything, instead of the XDG ones\n"
               "  BERTH_LIBEXEC              folder that holds berth-engine\n"
               "  XDG_CONFIG_HOME, XDG_CACHE_HOME, XDG_STATE_HOME, XDG_DATA_HOME\n"
               "                             where settings, caches, runs and data live\n"
               "  NO_COLOR, FORCE_COLOR      colour off or on, unless --color says otherwise\n"
               "  SSH_AUTH_SOCK              the SSH agent whose keys may be used\n\n"
               "Settings (an option on the command line wins, a configuration file loses):\n\n");
    const struct option *settings[COMMAND_MAX_SETTINGS];
    size_t n = command_settings(settings, COMMAND_MAX_SETTINGS);
    for (size_t i = 0; i < n; i++)
        put_env(s, settings[i]);
}

static void put_path(struct str *s, const char *what, enum path_kind kind, const char *rest)
{
    char *folder = path_user(kind);
    char *path = *rest ? path_join(folder, rest) : NULL;
    str_addf(s, "  %-10s %s\n", what, path ? path : folder);
    free(path);
    free(folder);
}

static void write_files(struct str *s)
{
    str_add(s, "Files\n\n");
    put_path(s, "settings", PATH_CONFIG, "config.json");
    put_path(s, "runs", PATH_STATE, "runs");
    put_path(s, "cache", PATH_CACHE, "");
    put_path(s, "data", PATH_DATA, "");
    put_path(s, "GPUs", PATH_DATA, "gpus.csv");
    put_path(s, "shapes", PATH_DATA, "shapes.csv");
    put_path(s, "constants", PATH_DATA, "calibration.json");
    str_add(s, "  project    ./berth.json\n"
               "  system     /etc/berth/config.json\n\n"
               "gpus.csv and shapes.csv, where you put them, add GPU models and instances or\n"
               "replace ours; `berth help formats` lists their columns. calibration.json holds\n"
               "constants of your own over the built-in ones, such as `berth probe` writes.\n\n"
               "Settings files hold one JSON object whose keys are settings, for example\n"
               "  {\"color\": \"never\"}\n"
               "First found wins: option, environment, job file, project file, settings,\n"
               "system file, built-in. `berth config show --origin` tells which one did.\n");
}

static void write_filters(struct str *s)
{
    const char *key, *help;
    str_add(s, "Filters of offers\n\n"
               "  gpu:h100 vram>=80 price<2.5 nodes>=4 fabric:ib !spot provider:aws,gcp\n\n"
               "All terms must hold. KEY:A,B means A or B; < <= > >= = compare numbers, and an\n"
               "unknown value meets none of them; ! in front negates. The words spot, on-demand,\n"
               "reserved, owned, cpu, ib and priced stand alone. Any other word is looked for in\n"
               "provider, id, GPU and region.\n\n");
    for (size_t i = 0; filter_key_at(i, &key, &help); i++)
        str_addf(s, "  %-12s %s\n", key, help);
}

static void write_data_kinds(struct str *s)
{
    str_add(s, "\nData (--data of launch, data of a job): files of tokens, cut into sequences in\n"
               "an order that depends on the seed alone. Words behind a file belong to it:\n\n"
               "  local:web.txt tokenizer=tokenizer.json weight=0.7\n"
               "  host:/data/chat.tok weight=0.3\n\n"
               "    kind=KIND       how it holds tokens, in place of --data-kind; see below\n"
               "    tokenizer=FILE  a tokenizer.json by which it is text (byte-level BPE)\n"
               "    field=NAME      of a .jsonl line: what holds the text, in place of text\n"
               "    prompt-field=NAME  what stands in front of it and is not learnt\n"
               "    mask=FILE       which tokens are learnt: for each one byte, 0 or 1, or one\n"
               "                    int32 label, -100 or the token itself\n"
               "    weight=NUMBER   its share of the sequences beside those of other files\n"
               "    documents=apart the first token of a document is not learnt, and where\n"
               "                    doc_tokens packs them each sees itself alone; joined: no\n"
               "    eos=ID          documents end behind it, in a file that does not say where\n\n"
               "Tokenizer and mask lie where the file does. Kinds:\n\n");
    for (int k = 0; k < DATA_KINDS; k++)
        str_addf(s, "    %-8s %s\n", data_kind_name((enum data_kind)k),
            data_kind_help((enum data_kind)k));
    str_add(s, "\n  auto tells text by its tokenizer, berth and llmc by how the file starts,\n"
               "  megatron by the .idx beside it, uint16 and uint32 by the names .u16 and .u32.\n"
               "  It refuses any other .bin file: nothing tells the width of its numbers. Every\n"
               "  token must be below the model's vocabulary; bytes need one of at least 256.\n"
               "  Text becomes tokens on the nodes before the first step; `berth data tokenize`\n"
               "  does it once and for all.\n");
}

static void write_formats(struct str *s)
{
    str_add(s, "Formats\n\n"
               "Offers as JSON (--offers FILE; written by berth offers --json): offers/1\n\n"
               "  {\"schema\": \"offers/1\",\n"
               "   \"offers\": [{\"provider\": \"dc\", \"id\": \"a\", \"gpu\": \"h100-sxm\",\n"
               "               \"gpus_per_node\": 8, \"price_usd_per_hour\": 19.92}]}\n\n"
               "  A missing or null field is unknown. Each amount is in the unit that its name\n"
               "  ends with; price_usd_per_hour is for one node. berth offers --json shows all\n"
               "  fields there are.\n\n"
               "Offers as CSV (--offers FILE; written by berth offers --csv): a header, then one\n"
               "kind of node per line; lines that start with # are comments\n\n"
               "  name,gpu,gpus,gpu_mem,nodes,fabric,inter_gbps,vcpus,ram,nvme,price,price_unit,\n"
               "  market,region\n\n"
               "  and any other field of offers/1 under its own name; columns that are not read\n"
               "  are named in a warning. Only gpu and gpus must be there. A bare number in\n"
               "  gpu_mem is GB as sold, in ram GiB, in nvme TB, in inter_gbps gigabit per\n"
               "  second and node; 81559MiB, 2TB and 2x7.68TB say it themselves.\n"
               "    price_unit  usd/gpu/h, usd/node/h, usd/node/day, usd/node/month (730 hours);\n"
               "                a price must have one\n"
               "    market      on-demand, spot, reserved, owned\n"
               "    fabric      none, ethernet, roce, infiniband, efa, tcpx, unknown\n"
               "    device      gpu, or cpu: then gpus is the ranks of a node and gpu_mem the\n"
               "                memory of one\n\n"
               "gpus.csv in the data folder (berth paths): GPU models to add or replace\n\n"
               "  id,family,form,vendor,aliases,memory_gb_sold,memory_mib_driver,\n"
               "  memory_gb_per_s,bf16_tflops,fp16_tflops,fp8_tflops,fp32_tflops,\n"
               "  bf16_measured_tflops,link,link_gb_per_s,link_scope,pcie_gen,pcie_gb_per_s,\n"
               "  tdp_w,capability,host_arch,source\n\n"
               "  Dense rates, one way per GPU; only id must be there. form: pcie, sxm, nvl,\n"
               "  oam, superchip, rack. link_scope: none, pair, quad, mesh, all, rack. Several\n"
               "  aliases are separated by semicolons.\n\n"
               "shapes.csv beside it: instances whose gaps Berth fills, and the sample market\n\n"
               "  provider,instance,gpu,gpus,nvlink,inter_gbps,fabric,max_nodes,vcpus,ram_gib,\n"
               "  nvme_tib,usd_per_hour,spot_usd_per_hour,price_date,arch,confidence,source\n\n"
               "GPU names: an id such as h100-sxm, a100-80-sxm, rtx4090, or the seller's name.\n\n"
               "Amounts in options: 10B tokens, 80GiB, 7d, 12h, 1500 USD.\n");
    write_data_kinds(s);
}

static void write_job_fields(struct str *s)
{
    str_add(s,
        "Job files\n\n"
        "`berth plan JOB` reads a JSON object with these fields; options say the same and\n"
        "win. Amounts are numbers in base units or texts such as \"10B\", \"7d\", \"80GiB\".\n\n"
        "  {\"model\": \"llama-3.1-8b\", \"tokens\": \"10B\", \"deadline\": \"7d\"}\n\n");
    for (int i = 0; job_field_at(i)->name; i++) {
        const struct job_field *f = job_field_at(i);
        str_addf(s, "  %s (%s)\n", f->name, f->form);
        help_fold(s, f->help, 6);
    }
}

static void write_model_fields(struct str *s)
{
    str_add(s, "\nFields of model, when it is an object (that of a config.json will do too: its\n"
               "sliding window is planned up to its length, rope scaling as linear or llama3)\n\n");
    for (int i = 0; model_field_at(i)->name; i++) {
        const struct model_field *f = model_field_at(i);
        str_addf(s, "  %s (%s)\n", f->name, f->form);
        help_fold(s, f->help, 6);
    }
}

static void write_job(struct str *s)
{
    write_job_fields(s);
    write_model_fields(s);
    str_add(s, "\nFields of training, for example {\"training\": {\"lr\": 6e-4, \"seed\": 7}}\n\n");
    for (int i = 0; training_field_at(i)->name; i++) {
        const struct training_field *f = training_field_at(i);
        str_addf(s, "  %s (%s; default %s)\n", f->name, f->form, f->fallback);
        help_fold(s, f->help, 6);
    }
}

static void write_models(struct str *s)
{
    str_add(s, "Models\n\n"
               "--model takes one of these, or the path of a Hugging Face config.json of the\n"
               "Llama family (Llama, Mistral, Qwen2, Qwen3, SmolLM2) or of GPT-2. Mixtures of\n"
               "experts (Mixtral, Qwen2-MoE, Qwen3-MoE, DeepSeekMoE) are planned and compared,\n"
               "not launched.\n\n"
               "A config that asks for what would be another model (rope scaling but linear and\n"
               "llama3, partial rotary embeddings, biases but of q, k and v, soft caps, experts\n"
               "of other types, quantised weights) is refused by the field's name. A sliding\n"
               "window is full attention up to its length, which is then the longest sequence.\n"
               "Dropout is not applied, whatever a config says of it.\n\n");
    for (int i = 0; model_preset_name(i); i++) {
        struct model m;
        char params[UNITS_TEXT];
        if (model_find(&m, model_preset_name(i), NULL) == RC_OK)
            str_addf(s, "  %-20s %8s parameters%s\n", model_preset_name(i),
                units_count(params, (double)model_params(&m)), m.experts > 0 ? ", experts" : "");
    }
}

static void write_memory(struct str *s)
{
    static const char *const MEANING[PART_COUNT] = {
        [PART_PARAMETERS] = "the rank's share of the weights in use",
        [PART_GRADIENTS] = "its share of the gradients, fp32",
        [PART_OPTIMIZER] = "master weights, or their lower halves, and moments",
        [PART_GATHERED] = "whole units gathered for use, then dropped",
        [PART_UNIT_GRADIENTS] = "gradients of a unit before they are reduced",
        [PART_ACTIVATIONS] = "what the backward pass needs of the forward pass",
        [PART_LOGITS] = "the last layer's output",
        [PART_SCRATCH] = "work space of operations and collectives",
        [PART_DATA] = "tokens and targets",
    };
    static const char *const NAMES[] = {
#define X(name, word) word,
        PART_MAP(X)
#undef X
    };
    str_add(s, "Memory\n\n"
               "A training step is a list of operations that is known before the run, and so is\n"
               "when each buffer is first and last used. The peak is the maximum, over the list,\n"
               "of everything alive at once; the engine takes exactly that much in one piece and\n"
               "allocates nothing more. Reports name these parts:\n\n");
    for (int i = 0; i < PART_COUNT; i++)
        str_addf(s, "  %-20s %s\n", NAMES[i], MEANING[i]);
    str_add(s, "\nddp keeps everything on every rank; zero1 shares the optimizer among the ranks,\n"
               "zero2 the gradients as well, zero3 the parameters as well; hsdp does what zero3\n"
               "does inside groups of ranks and keeps a replica in each group. Recomputation\n"
               "trades activations for time. Offload moves states off the GPU: the optimizer\n"
               "alone to host memory, where each unit is updated just ahead of its forward pass\n"
               "in the next step, beside that of the units before it; optimizer+params,\n"
               "parameters and gradients too, of which each unit is copied up for its gather;\n"
               "nvme, the optimizer's states to the disk of the node (berth launch --nvme-dir),\n"
               "through host buffers of three units; nvme+params, parameters too, read ahead of\n"
               "each gather and written after the update, with gradients in host memory;\n"
               "activations, what blocks keep for backward to host memory. Plans use them where\n"
               "nothing fits without, and the disk, if it takes more than half of a step, only\n"
               "where no other offer does without; --offload asks for one. Reports then name the\n"
               "parts of host memory and of the disk too, and what a run writes to it: drives\n"
               "wear out.\n\n"
               "What is outside the list (driver context, code, libraries) is set aside first,\n"
               "as external. fit_probability says how likely it all fits.\n");
}

static void write_hosts(struct str *s)
{
    str_add(s,
        "Host lists\n\n"
        "--hosts takes a file, - for standard input, or the list itself:\n"
        "  node[01-04,07]           node01 node02 node03 node04 node07\n"
        "  gpu-[a-c],login:2222     several, with commas\n\n"
        "A file has one host per line, # starts a comment:\n"
        "  [user@]host[:port] [KEY=VALUE ...]\n"
        "  [2001:db8::7]:22         IPv6 with a port; without one no brackets are needed\n"
        "  slots=N                  ranks it may take (as DeepSpeed hostfiles say it)\n"
        "  dir=PATH                 work folder there, instead of --remote-dir\n"
        "  address=IP               where the other nodes reach it, when that is not the\n"
        "                           address that SSH reaches\n"
        "  identity=FILE            private key to log in with\n"
        "  jump=[user@]host[:port]  go through this host\n"
        "  price=USD                an hour, for the whole node\n"
        "  user=NAME port=N         as in front of the host\n\n"
        "Or JSON, with the same and exclude, connect (name or address for SSH) and\n"
        "rendezvous_address, price_usd_per_hour in place of address, price:\n"
        "  {\"hosts\": [{\"host\": \"node[1-4]\", \"exclude\": [\"node3\"], \"port\": 2222}]}\n\n"
        "What ~/.ssh/config says about a host counts too (HostName, Port, User,\n"
        "IdentityFile, ProxyJump). The first hosts are taken when the list has more than\n"
        "the plan needs; the first one's agent coordinates the run.\n");
}

static void write_what_if(struct str *s)
{
    str_add(s, "What if\n\n"
               "  berth plan job.json --what-if network=0.5x price=+10% --what-if mfu=0.9x\n\n"
               "Each --what-if plans the job again with all of its changes (separated by spaces\n"
               "or commas) made at once, and says whether something else would be rented, what\n"
               "it costs, how long it takes, and what becomes of the offer that was first.\n\n"
               "A change is QUANTITY=FACTOR (0.5x, 2x, +10%, -20%), or QUANTITY.GPU=FACTOR of\n"
               "one GPU, by its id or family (price.h100-sxm, memory.a100; cpu for CPU nodes).\n"
               "Where an amount is possible too, +AMOUNT and -AMOUNT add to what there is and\n"
               "AMOUNT alone replaces it.\n\n");
    what_if_help(s);
    str_add(s, "\nA job file behind the changes whose name has a = in it needs -- in front.\n");
}

static void write_constants(struct str *s)
{
    str_add(s, "Constants\n\n"
               "A calibration file, of --calibration or calibration.json among the user's files\n"
               "(`berth help files`), wins over the built-in constants where it has one:\n\n"
               "  {\"schema\": \"calibration/1\", \"entries\": [{\"device\": \"gpu\",\n"
               "    \"chip\": \"h100-sxm\", \"stack\": \"berth\", \"source\": \"own runs\",\n"
               "    \"date\": \"2026-11-01\", \"rows\": 12, \"residual\": 0.03, \"prior\": false,\n"
               "    \"values\": {\"stack_matmul\": 0.95, \"time_log_sd\": 0.05}}]}\n\n"
               "device is gpu or cpu, chip a GPU of facts/gpus.csv or a CPU's instruction set;\n"
               "* stands for all. Later entries win. Values may be:\n\n");
    for (int i = 0; constant_at(i)->name; i++)
        str_addf(s, "  %-29s %s\n", constant_at(i)->name, constant_at(i)->help);
    str_add(s, "\nA name that is not among them is refused.\n");
}

const struct help_topic HELP_TOPICS[] = {
    {"job", "the job file of berth plan", write_job},
    {"models", "models Berth knows by name", write_models},
    {"memory", "what takes memory, and how the peak is known", write_memory},
    {"filters", "how to choose among offers", write_filters},
    {"hosts", "how to say which machines to run on", write_hosts},
    {"what-if", "questions to plans: berth plan --what-if", write_what_if},
    {"formats", "files that Berth reads and writes", write_formats},
    {"evidence", "tables of measured runs", write_evidence},
    {"constants", "what a calibration file may hold", write_constants},
    {"exit-codes", "what the exit status means", write_exit_codes},
    {"environment", "environment variables", write_environment},
    {"files", "where settings, runs and caches are", write_files},
    {NULL, NULL, NULL},
};
