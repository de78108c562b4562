"""The operations of the interface: decisions of the model inside transactions of the store.

There is one class per kind of operation: Registrar, RegistryReader, Deleter, and SubjectSettings.
They share one RegistryStore and one SchemaCache. Rule: nothing here knows HTTP.
"""
