package fencesql

import "reflect"

// Functions are the texts of the functions of PostgreSQL.
var Functions = map[string]string{"load": postgresLoad, "store": postgresStore, "shadows": postgresShadows}

// Statements are the texts that adapters send, by name.
func Statements(e Engine) map[string]string {
	all := map[string]string{}
	shared := reflect.ValueOf(*e.text())
	for i := range shared.NumField() {
		all[shared.Type().Field(i).Name] = shared.Field(i).String()
	}
	if _, ok := e.(SQLite); ok {
		for name, text := range map[string]string{
			"Lock": sqliteLock, "Load": sqliteLoad, "Insert": sqliteInsert, "Update": sqliteUpdate, "UpdateNumber": sqliteUpdateNumber, "InsertReceipt": sqliteInsertReceipt,
		} {
			all[name] = text
		}
		return all
	}
	for name, text := range map[string]string{
		"Look": postgresLook, "Pass": postgresPass, "Same": postgresSame, "Forget": postgresForget, "ForgetPasses": postgresForgetPasses,
	} {
		all[name] = text
	}
	return all
}
