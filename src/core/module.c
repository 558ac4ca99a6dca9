/* The module `unspool._core`. */

#include "core.h"
#include "evaluation.h"
#include "holding.h"
#include "journal.h"

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "unspool._core",
    .m_doc = "Nodes, the table in which equal recipes are one node, and the records of steps.",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    PyTypeObject *types[] = {&OpType,     &NodeType,  &BundleType, &CallType,   &TensorType,
                             &OriginType, &PieceType, &StepType,   &PendingType,
                             &UpdateType, &UpdaterType, &MatcherType, &SweepType,
                             &JournalType, &EncoderType, &CountersType, &LedgerType, &BoundsType,
                             &PlanType,    &SiteType,    &RowType,    &QueueType,    &PrivacyType,  &RunnerType,
                             &NoteType,    &CallSweepType, &SourcesType, &UnitTableType,
                             &HeldType,    &SlabType,    &ValuesType,  &FrameType,     &LevelsType,
                             &StorageType};
    PyMethodDef *functions[] = {table_methods,         node_methods,           given_methods,
                                origin_methods,        interning_methods,      call_function_methods,
                                piece_function_methods, step_function_methods, recording_methods,
                                operator_methods,      place_methods,          selection_methods,
                                constant_methods,      update_methods,         layout_methods,
                                matching_methods,      sweep_methods,          wiring_methods,
                                encoding_methods,      site_functions,         folding_functions,
                                running_functions,     reducing_methods,       walk_methods,
                                note_function_methods, call_sweep_function_methods, term_methods,
                                tracking_methods,      substitution_methods, product_methods,
                                bundle_methods,        chain_methods,
                                 unit_methods,          laid_methods,           pass_methods,
                                 held_functions,        waiting_functions,      replaying_methods};
    empty = PyTuple_New(0);
    if (empty == NULL || table_start() < 0 || calls_start() < 0 || indexing_start() < 0 ||
        constants_start() < 0 || layout_start() < 0 || reducing_start() < 0 || queue_start() < 0 ||
        folding_start() < 0 || running_start() < 0 || notes_start() < 0 || call_sweeps_start() < 0 ||
        terms_start() < 0 || encoding_start() < 0 ||
        laid_start() < 0 || passes_start() < 0 || ledger_start() < 0 || memories_start() < 0 ||
        slabs_start() < 0 || waiting_start() < 0 || values_start() < 0 || frames_start() < 0 ||
        describing_start() < 0) {
        return PyErr_NoMemory();
    }
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module != NULL && i < Py_ARRAY_LENGTH(types); i++) {
        if (PyModule_AddType(module, types[i]) < 0) {
            Py_CLEAR(module);
        }
    }
    for (size_t i = 0; module != NULL && i < Py_ARRAY_LENGTH(functions); i++) {
        if (PyModule_AddFunctions(module, functions[i]) < 0) {
            Py_CLEAR(module);
        }
    }
    return module;
}
